// Included after the kernels of a translation unit. Runs the threads of a grid one at a time, as
// Metal's dispatchThreads does: threadgroups at the end of an axis may be smaller.
#pragma once
#include <setjmp.h>
#include <stdint.h>

// Defined in trace.cpp: begin, announce the next thread, leave a thread that failed, and end.
extern "C" void trace_thread(uint64_t thread, uint64_t simd_group, uint64_t group);
extern "C" jmp_buf* trace_exit();
extern "C" void trace_leave();
extern "C" void trace_walk(void* frame);
extern "C" void trace_walked();

#define UNSEEN __attribute__((no_sanitize("thread"), no_sanitize("undefined"), noinline))

typedef void (*ThreadFunction)(void** buffers, uint3 position);

UNSEEN static void run_thread(
    ThreadFunction function, void** buffers, const uint32_t* grid, const uint32_t* group,
    uint64_t n) {
  const uint32_t x = n % grid[0], y = n / grid[0] % grid[1], z = n / grid[0] / grid[1];
  const uint32_t gx = x / group[0], gy = y / group[1], gz = z / group[2];
  const uint32_t across = (grid[0] + group[0] - 1) / group[0],
                 down = (grid[1] + group[1] - 1) / group[1];
  // Threads of a smaller group are numbered by that group's own size.
  const uint32_t wide = grid[0] - gx * group[0] < group[0] ? grid[0] - gx * group[0] : group[0];
  const uint32_t high = grid[1] - gy * group[1] < group[1] ? grid[1] - gy * group[1] : group[1];
  const uint32_t in_group = x % group[0] + wide * (y % group[1] + high * (z % group[2]));
  const uint64_t group_number = gx + uint64_t(across) * (gy + uint64_t(down) * gz);
  trace_thread(n, group_number * 64 + in_group / 32, group_number);
  if (!_setjmp(*trace_exit())) {
    function(buffers, uint3(x, y, z));
  }
  trace_leave();
}

// Runs the threads that `order` lists by their number in the grid (x fastest).
UNSEEN static void walk(
    ThreadFunction function, void** buffers, const uint32_t* grid, const uint32_t* group,
    const uint64_t* order, uint64_t count) {
  trace_walk(__builtin_frame_address(0));
  for (uint64_t i = 0; i < count; ++i) {
    run_thread(function, buffers, grid, group, order[i]);
  }
  trace_walked();
}
