// Reduces elements of each type. Small floats are summed as float and rounded once.
#include "reduce.h"

#include <stdint.h>
#include <string.h>

size_t datatype_bytes(ncclDataType_t type) {
    static const size_t bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (unsigned)type < ncclNumTypes ? bytes[type] : 0;
}

const char *datatype_name(ncclDataType_t type) {
    // NCCL has no name for ncclUint8 in any release.
    static const char *const names[ncclNumTypes] = {
        "ncclInt8",    "Unknown",      "ncclInt32",      "ncclUint32",
        "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
        "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
    return (unsigned)type < ncclNumTypes ? names[type] : "Unknown";
}

// ---- small floats: sign, exponent, mantissa ----
struct form {
    int exponent_bits, mantissa_bits;
    int has_infinity;  // else the largest exponent holds numbers, and all ones is NaN
};
static const struct form half = {5, 10, 1}, e4m3 = {4, 3, 0}, e5m2 = {5, 2, 1};

static float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static uint32_t float_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float widen(uint32_t small, struct form form) {
    int bias = (1 << (form.exponent_bits - 1)) - 1;
    uint32_t mantissa = small & ((1u << form.mantissa_bits) - 1);
    int exponent = (int)(small >> form.mantissa_bits & ((1u << form.exponent_bits) - 1));
    int sign = (int)(small >> (form.exponent_bits + form.mantissa_bits)) & 1;
    int top = (1 << form.exponent_bits) - 1;
    float value;
    if (exponent == top && form.has_infinity)
        value = bits_to_float(0x7F800000u | mantissa << (23 - form.mantissa_bits));
    else if (exponent == top && mantissa == (1u << form.mantissa_bits) - 1)
        value = bits_to_float(0x7FC00000u);
    else if (exponent == 0)
        value =
            (float)mantissa * bits_to_float((uint32_t)(127 + 1 - bias - form.mantissa_bits) << 23);
    else
        value = bits_to_float((uint32_t)(exponent - bias + 127) << 23 |
                              mantissa << (23 - form.mantissa_bits));
    return sign ? -value : value;
}

static uint32_t narrow(float wide, struct form form) {
    uint32_t bits = float_to_bits(wide), sign = bits >> 31;
    int bias = (1 << (form.exponent_bits - 1)) - 1, top = (1 << form.exponent_bits) - 1;
    uint32_t largest = form.has_infinity ? (uint32_t)top << form.mantissa_bits  // infinity
                                         : ((uint32_t)(top + 1) << form.mantissa_bits) - 2;
    uint32_t out, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) {
        out = ((uint32_t)(top + 1) << form.mantissa_bits) - 1;
    } else {
        int exponent = (int)(magnitude >> 23) - 127 + bias;
        uint64_t mantissa = (magnitude & 0x7FFFFF) | (magnitude >> 23 ? 0x800000 : 0);
        int drop = 23 - form.mantissa_bits + (exponent > 0 ? 0 : 1 - exponent);
        if (drop > 40) drop = 40;
        uint64_t kept = mantissa >> drop, rest = mantissa & ((1ull << drop) - 1);
        uint64_t middle = 1ull << (drop - 1);
        if (rest > middle || (rest == middle && kept & 1)) kept++;
        // A carry out of the mantissa raises the exponent by itself.
        uint64_t whole =
            exponent > 0 ? ((uint64_t)(exponent - 1) << form.mantissa_bits) + kept : kept;
        out = magnitude == 0x7F800000 || whole > largest ? largest : (uint32_t)whole;
    }
    return out | sign << (form.exponent_bits + form.mantissa_bits);
}

static float from_half(uint16_t x) { return widen(x, half); }
static uint16_t to_half(float x) { return (uint16_t)narrow(x, half); }
static float from_bfloat(uint16_t x) { return bits_to_float((uint32_t)x << 16); }
static uint16_t to_bfloat(float x) {
    uint32_t bits = float_to_bits(x);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
static float from_e4m3(uint8_t x) { return widen(x, e4m3); }
static uint8_t to_e4m3(float x) { return (uint8_t)narrow(x, e4m3); }
static float from_e5m2(uint8_t x) { return widen(x, e5m2); }
static uint8_t to_e5m2(float x) { return (uint8_t)narrow(x, e5m2); }

// ---- reducers: one function per type; sums of integers wrap as on the GPU ----
#define SAME(x) (x)
#define DEFINE_REDUCER(name, stored, wide, load, store, sum_type)                        \
    static void reduce_##name(void *out, const void *const *inputs, int n, size_t count, \
                              ncclRedOp_t op) {                                          \
        for (size_t i = 0; i < count; i++) {                                             \
            wide all = load(((const stored *)inputs[0])[i]);                             \
            for (int k = 1; k < n; k++) {                                                \
                wide next = load(((const stored *)inputs[k])[i]);                        \
                switch (op) {                                                            \
                    case ncclProd: all = (wide)((sum_type)all * (sum_type)next); break;  \
                    case ncclMax: all = next > all ? next : all; break;                  \
                    case ncclMin: all = next < all ? next : all; break;                  \
                    default: all = (wide)((sum_type)all + (sum_type)next); break;        \
                }                                                                        \
            }                                                                            \
            if (op == ncclAvg) all = (wide)(all / (wide)n);                              \
            ((stored *)out)[i] = (stored)store(all);                                     \
        }                                                                                \
    }
DEFINE_REDUCER(int8, int8_t, int8_t, SAME, SAME, uint32_t)
DEFINE_REDUCER(uint8, uint8_t, uint8_t, SAME, SAME, uint32_t)
DEFINE_REDUCER(int32, int32_t, int32_t, SAME, SAME, uint32_t)
DEFINE_REDUCER(uint32, uint32_t, uint32_t, SAME, SAME, uint32_t)
DEFINE_REDUCER(int64, int64_t, int64_t, SAME, SAME, uint64_t)
DEFINE_REDUCER(uint64, uint64_t, uint64_t, SAME, SAME, uint64_t)
DEFINE_REDUCER(half, uint16_t, float, from_half, to_half, float)
DEFINE_REDUCER(float, float, float, SAME, SAME, float)
DEFINE_REDUCER(double, double, double, SAME, SAME, double)
DEFINE_REDUCER(bfloat, uint16_t, float, from_bfloat, to_bfloat, float)
DEFINE_REDUCER(e4m3, uint8_t, float, from_e4m3, to_e4m3, float)
DEFINE_REDUCER(e5m2, uint8_t, float, from_e5m2, to_e5m2, float)

void reduce(void *out, const void *const *inputs, int input_count, size_t count,
            ncclDataType_t type, ncclRedOp_t op) {
    static void (*const reducers[ncclNumTypes])(void *, const void *const *, int, size_t,
                                                ncclRedOp_t) = {
        reduce_int8, reduce_uint8, reduce_int32,  reduce_uint32, reduce_int64, reduce_uint64,
        reduce_half, reduce_float, reduce_double, reduce_bfloat, reduce_e4m3,  reduce_e5m2};
    reducers[type](out, inputs, input_count, count, op);
}
