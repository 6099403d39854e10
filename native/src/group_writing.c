// Follows groups through the slots of a stream.
//
// Example: profile mode ends between a call and its launch. The stream holds GroupApi and CollApi,
// which were visited before, then KernelLaunch, Group and Coll. The GroupApi says that it began in
// a mode that writes nothing, so the launch and the works are not written, either. The next
// GroupApi is of the new mode.
#include "group_writing.h"

static bool may_belong_to_group(unsigned kind) {
    return kind == KIND_group_api || kind == KIND_coll_api || kind == KIND_p2p_api ||
           kind == KIND_kernel_launch || kind == KIND_group || kind == KIND_coll ||
           kind == KIND_p2p || kind == KIND_coll_ext || kind == KIND_p2p_ext;
}

static enum follows decided_by(const union slot *group_api) {
    return group_api->group_api.bits & GROUP_IS_WRITTEN ? FOLLOWS_WRITTEN : FOLLOWS_UNWRITTEN;
}

// The slot of a handle in any stream; NULL: its chunk was freed.
static const union slot *find(u64 handle) {
    u32 number = (u32)(handle >> INDEX_BITS) & CONTEXT_STREAM;
    if (handle >> HANDLE_BITS != callback_state.nonce || number >= MAX_STREAMS) return NULL;
    const struct stream *stream = &streams[number];
    if (!stream->adopted) return NULL;
    u64 later = ((handle & INDEX_MASK) >> CHUNK_SLOTS_LOG2) - stream->oldest_number;
    u32 chunk = stream->oldest_chunk;
    for (later &= CHUNK_NUMBER_MASK; chunk && later; later--)
        chunk = __atomic_load_n(&arena_next[chunk - 1], __ATOMIC_ACQUIRE);
    return chunk ? arena_chunk(chunk - 1) + (handle & (CHUNK_SLOTS - 1)) : NULL;
}

static enum follows decided_by_group(u64 handle) {
    const union slot *slot = find(handle);
    if (!slot) return FOLLOWS_MODE;
    u64 head = slot_head(slot);
    bool is_it = head_kind(head) == KIND_group_api && head_check(head) == (u32)handle;
    return is_it ? decided_by(slot) : FOLLOWS_MODE;
}

// A call or launch follows its GroupApi, which comes before it in its stream; where NCCL launches
// from another thread, in that thread's. Works follow their launch. Everything else, and what has
// no GroupApi, follows the present mode.
bool group_writing_decide(struct stream *stream, const union slot *slot, u64 head, u64 handle,
                          bool by_mode) {
    unsigned kind = head_kind(head);
    if (!may_belong_to_group(kind)) return by_mode;
    if (kind == KIND_group_api) {
        stream->group = handle;
        stream->group_follows = stream->launch_follows = decided_by(slot);
    } else if (kind == KIND_coll_api || kind == KIND_p2p_api || kind == KIND_kernel_launch) {
        u64 parent = slot->coll_api.parent;
        bool of_newest = stream->group && parent == stream->group;
        stream->launch_follows = of_newest ? stream->group_follows : decided_by_group(parent);
    }
    if (stream->launch_follows == FOLLOWS_MODE) return by_mode;
    return stream->launch_follows == FOLLOWS_WRITTEN;
}

bool group_writing_follows_group(const struct stream *stream, unsigned kind) {
    return may_belong_to_group(kind) && stream->launch_follows != FOLLOWS_MODE;
}

void group_writing_forget(struct stream *stream) {
    stream->group = 0;
    stream->group_follows = stream->launch_follows = FOLLOWS_MODE;
}
