// What NCCLSCOPE_* variables mean.
#include "config.h"

#include "test.h"
#include "timing_policy.h"

static void read_with(const char *name, const char *value) {
    setenv(name, value, 1);
    config_read();
    unsetenv(name);
}

TEST(without_variables_a_process_profiles) {
    unsetenv("NCCLSCOPE_MODE");
    config_read();
    CHECK_EQUAL(config.mode, MODE_PROFILE);
    CHECK_EQUAL(config.events, PROFILE_EVENTS);
    CHECK_EQUAL(config.disk_limit_bytes, 4ull << 30);
    CHECK_EQUAL(config.exit_wait_ns, 2000000000u);
    CHECK_EQUAL(config.gpu_timing_asked, GPU_TIMING_AUTO);
    CHECK(config.graph_markers && !config.disabled && !config.complaint[0]);
}

TEST(modes_have_their_events) {
    read_with("NCCLSCOPE_MODE", "trace");
    CHECK_EQUAL(config.mode, MODE_TRACE);
    CHECK_EQUAL(config.events, 0xFF4F);
    read_with("NCCLSCOPE_MODE", "full");
    CHECK_EQUAL(config.events, NCCL_EVENTS_NEWEST);
    CHECK_EQUAL(config_mode_by_name("profile"), MODE_PROFILE);
    CHECK_EQUAL(config_mode_by_name("everything"), 0);
}

TEST(a_mode_that_is_none_is_named) {
    read_with("NCCLSCOPE_MODE", "everything");
    CHECK_EQUAL(config.mode, MODE_PROFILE);
    CHECK(strstr(config.complaint, "NCCLSCOPE_MODE=everything"));
}

TEST(events_are_a_mask) {
    read_with("NCCLSCOPE_EVENTS", "0x42");
    CHECK_EQUAL(config.events, NCCL_COLL | NCCL_KERNEL_CH);
    read_with("NCCLSCOPE_EVENTS", "0x10000");
    CHECK(strstr(config.complaint, "NCCLSCOPE_EVENTS"));
    CHECK_EQUAL(config.events, PROFILE_EVENTS);
    setenv("NCCLSCOPE_GPU_TIMING", "0", 1);
    read_with("NCCLSCOPE_EVENTS", "0x42");
    timing_policy_choose(5);
    CHECK_EQUAL(config.events, NCCL_COLL);
}

static enum gpu_timing in_force(const char *mode, const char *asked, int version) {
    setenv("NCCLSCOPE_GPU_TIMING", asked, 1);
    read_with("NCCLSCOPE_MODE", mode);
    timing_policy_choose(version);
    return timing_policy.in_force;
}

TEST(gpu_timing_is_what_was_asked_where_it_is_possible) {
    CHECK_EQUAL(in_force("profile", "kernel", 5), GPU_TIMING_KERNEL);
    CHECK(config.events & NCCL_KERNEL_CH);
    CHECK_EQUAL(in_force("profile", "1", 7), GPU_TIMING_KERNEL);
    CHECK(!timing_policy.reason[0]);
    CHECK_EQUAL(in_force("trace", "0", 6), GPU_TIMING_OFF);
    CHECK_EQUAL(config.events & (NCCL_KERNEL_CH | NCCL_KERNEL_PHASE), 0);
    CHECK_EQUAL(in_force("trace", "off", 6), GPU_TIMING_OFF);
    CHECK_EQUAL(in_force("trace", "auto", 5), GPU_TIMING_KERNEL);
    CHECK(strstr(timing_policy.reason, "trace mode"));
    CHECK_EQUAL(in_force("trace", "often", 5), GPU_TIMING_KERNEL);
    CHECK(strstr(config.complaint, "NCCLSCOPE_GPU_TIMING=often"));
}

TEST(without_cuda_nothing_is_sampled) {
    CHECK_EQUAL(in_force("profile", "auto", 5), GPU_TIMING_OFF);
    CHECK(strstr(timing_policy.reason, "libcuda is missing"));
    CHECK_EQUAL(config.events & NCCL_KERNEL_CH, 0);
}

TEST(old_interfaces_get_the_nearest_gpu_timing) {
    CHECK_EQUAL(in_force("profile", "auto", 4), GPU_TIMING_OFF);
    CHECK(strstr(timing_policy.reason, "no launches"));
    CHECK_EQUAL(in_force("trace", "sampled", 4), GPU_TIMING_OFF);  // no release may be hung
    CHECK(strstr(timing_policy.reason, "no launches"));
    CHECK_EQUAL(config.events & NCCL_KERNEL_CH, 0);
    CHECK_EQUAL(timing_policy_events_of_mode(MODE_FULL) & NCCL_KERNEL_CH, 0);
    CHECK_EQUAL(in_force("profile", "sampled", 3), GPU_TIMING_OFF);
    CHECK_EQUAL(in_force("profile", "kernel", 3), GPU_TIMING_KERNEL);
    CHECK(strstr(timing_policy.reason, "no GPU times"));
    CHECK_EQUAL(in_force("profile", "kernel", 2), GPU_TIMING_OFF);
}

TEST(who_lists_kernels_beside_samples_keeps_them) {
    setenv("NCCLSCOPE_GPU_TIMING", "sampled", 1);
    read_with("NCCLSCOPE_EVENTS", "0x42");
    timing_policy_choose(5);  // there is no libcuda
    CHECK_EQUAL(timing_policy.in_force, GPU_TIMING_KERNEL);
    CHECK_EQUAL(config.events, NCCL_COLL | NCCL_KERNEL_CH);
}

TEST(a_mode_changes_what_may_change_while_a_job_runs) {
    CHECK_EQUAL(in_force("profile", "kernel", 7), GPU_TIMING_KERNEL);
    CHECK_EQUAL(timing_policy_events_of_mode(MODE_FULL), NCCL_EVENTS_NEWEST);
    read_with("NCCLSCOPE_EVENTS", "0x2");  // KernelCh was never on, and stays off
    timing_policy_choose(7);
    CHECK_EQUAL(timing_policy_events_of_mode(MODE_TRACE) & NCCL_KERNEL_CH, 0);
}

TEST(sizes_have_units) {
    read_with("NCCLSCOPE_DISK_LIMIT", "1.5G");
    CHECK_EQUAL(config.disk_limit_bytes, 3ull << 29);
    read_with("NCCLSCOPE_ARENA", "2m");
    CHECK_EQUAL(config.arena_bytes, 2u << 20);
    read_with("NCCLSCOPE_ARENA", "2 tons");
    CHECK_EQUAL(config.arena_bytes, 0);
    CHECK(strstr(config.complaint, "NCCLSCOPE_ARENA=2 tons"));
    read_with("NCCLSCOPE_ARENA", "1K");
    CHECK_EQUAL(config.arena_bytes, 512u << 10);
    CHECK(strstr(config.complaint, "too small"));
}

TEST(a_ring_is_for_events) {
    setenv("NCCLSCOPE_RING", "8M", 1);
    read_with("NCCLSCOPE_MODE", "trace");
    CHECK_EQUAL(config.ring_bytes, 8u << 20);
    read_with("NCCLSCOPE_MODE", "profile");
    CHECK_EQUAL(config.ring_bytes, 0);
}

TEST(directories_are_expanded) {
    char expected[64];
    setenv("RANK", "7", 1);
    read_with("NCCLSCOPE_DIR", "/tmp/run.%r.%p.%%.%x");
    snprintf(expected, sizeof expected, "/tmp/run.7.%d.%%.%%x", (int)getpid());
    CHECK(strcmp(config.capture_dir, expected) == 0);
    setenv("SLURM_JOB_ID", "12/3", 1);
    config_read();
    CHECK(strstr(config.capture_dir, "/ncclscope-12_3"));
}
