// Checks every memory access of a kernel.
//
// Kernels are compiled with -fsanitize=thread,undefined and linked with this library instead of the
// sanitizers': the compiler calls the functions below before every load and store
// and at undefined behaviour.
#include <setjmp.h>
#include <stdint.h>
#include <sys/mman.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

typedef uint64_t u64;

enum Kind : u64 { // FAILURES in metal_host.py has the names
  OUT_OF_BOUNDS = 1, WRITE_TO_INPUT, SECOND_WRITE, READ_OF_OUTPUT, ATOMIC_AND_PLAIN,
  UNDEFINED_BEHAVIOUR
};

struct Failure {
  u64 kind, thread, buffer;
  int64_t offset;
};

struct Traffic { // of one buffer in one direction
  u64 bytes, simd_lines, group_lines, unique_bytes;
};

static const u64 LINE = 128;

struct Counter { // the traffic of one buffer in one direction, and the lines of the current groups
  Traffic total;
  std::vector<u64> simd_lines;
  std::unordered_set<u64> group_lines;
  std::vector<bool> touched;

  void add(u64 offset, u64 size) {
    total.bytes += size;
    for (u64 line = offset / LINE; line <= (offset + size - 1) / LINE; ++line) {
      simd_lines.push_back(line);
    }
    for (u64 i = offset; i < offset + size; ++i) {
      total.unique_bytes += !touched[i];
      touched[i] = true;
    }
  }

  void end_simd_group() {
    std::sort(simd_lines.begin(), simd_lines.end());
    simd_lines.erase(std::unique(simd_lines.begin(), simd_lines.end()), simd_lines.end());
    total.simd_lines += simd_lines.size();
    group_lines.insert(simd_lines.begin(), simd_lines.end());
    simd_lines.clear();
  }

  void end_group() {
    end_simd_group();
    total.group_lines += group_lines.size();
    group_lines.clear();
  }
};

enum Writer : uint8_t { NOBODY, HOST, ATOMICS, PLAIN }; // the last one of a byte

struct Buffer {
  uintptr_t start;
  u64 size;
  bool output;
  std::vector<uint8_t> writer; // of each byte
  Counter counters[2]; // of reads and of writes
};

static std::vector<Buffer> buffers;
static std::vector<Failure> failures;
static u64 failure_count;
static bool active, tracking, counting, flushing;
static u64 thread_now, simd_now, group_now;
static bool any_thread;
static jmp_buf way_out;
static uintptr_t stack_top; // the stack of a kernel is below
static const u64 STACK = 1 << 20;
// Buffer n starts at (FIRST_RANGE + n) * APART, so that an index out of bounds never reaches
// another buffer.
static const u64 APART = u64(1) << 40, FIRST_RANGE = 16;

static void fail(Kind kind, u64 buffer, int64_t offset) {
  ++failure_count;
  if (failures.size() < 64) {
    failures.push_back({kind, thread_now, buffer, offset});
  }
}

static void fail_and_leave(Kind kind, u64 buffer, int64_t offset) {
  fail(kind, buffer, offset);
  active = false;
  longjmp(way_out, 1); // before the access happens
}

// The rule that an access of one byte of an output breaks, or 0. Every byte is written once, or
// only by atomic operations, and read by them alone, so that results do not depend on the order
// of threads.
static u64 broken_rule(uint8_t& writer, bool write, bool atomic) {
  const uint8_t before = writer;
  if (atomic) {
    writer = ATOMICS;
    return before == PLAIN ? ATOMIC_AND_PLAIN : 0;
  }
  if (before == ATOMICS) {
    return ATOMIC_AND_PLAIN;
  }
  if (!write) {
    return READ_OF_OUTPUT;
  }
  writer = PLAIN;
  return before == PLAIN ? SECOND_WRITE : 0;
}

static void access(void* pointer, u64 size, bool write, bool atomic = false) {
  const uintptr_t at = (uintptr_t)pointer;
  if (!active || (at < stack_top && at >= stack_top - STACK)) {
    return;
  }
  // The buffer in whose range the address is, or the first one.
  const u64 range = ((at + APART / 2) / APART) - FIRST_RANGE,
            b = range < buffers.size() ? range : 0;
  Buffer& buffer = buffers[b];
  const int64_t offset = int64_t(at - buffer.start);
  if (offset < 0 || u64(offset) + size > buffer.size) {
    fail_and_leave(OUT_OF_BOUNDS, b, offset);
  }
  if (write && !buffer.output) {
    fail_and_leave(WRITE_TO_INPUT, b, offset);
  }
  for (u64 byte = offset; tracking && buffer.output && byte < u64(offset) + size; ++byte) {
    if (u64 kind = broken_rule(buffer.writer[byte], write, atomic)) {
      fail(Kind(kind), b, offset);
      break;
    }
  }
  if (counting) {
    buffer.counters[write].add(offset, size);
  }
}

extern "C" {
#define ACCESS(n)                                                                  \
  void __tsan_read##n(void* p) { access(p, n, false); }                            \
  void __tsan_write##n(void* p) { access(p, n, true); }                            \
  void __tsan_unaligned_read##n(void* p) { access(p, n, false); }                  \
  void __tsan_unaligned_write##n(void* p) { access(p, n, true); }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
void __tsan_read_range(void* p, u64 n) { access(p, n, false); }
void __tsan_write_range(void* p, u64 n) { access(p, n, true); }
void __tsan_init() {}
void msl_atomic(void* pointer, u64 size) { access(pointer, size, true, true); }

// The compiler calls one of these at undefined behaviour and then continues.
#define UNDEFINED(name) \
  void __ubsan_handle_##name() { if (active) { fail(UNDEFINED_BEHAVIOUR, 0, 0); } }
UNDEFINED(add_overflow) UNDEFINED(sub_overflow) UNDEFINED(mul_overflow) UNDEFINED(negate_overflow)
UNDEFINED(divrem_overflow) UNDEFINED(shift_out_of_bounds) UNDEFINED(out_of_bounds)
UNDEFINED(load_invalid_value) UNDEFINED(pointer_overflow) UNDEFINED(float_cast_overflow)
UNDEFINED(vla_bound_not_positive) UNDEFINED(nonnull_arg) UNDEFINED(invalid_builtin)
UNDEFINED(builtin_unreachable) UNDEFINED(missing_return) UNDEFINED(nonnull_return_v1)
// A misaligned address: the access could end the process, so the thread ends before it.
void __ubsan_handle_type_mismatch_v1() {
  if (active) {
    fail_and_leave(UNDEFINED_BEHAVIOUR, 0, 0);
  }
}

void trace_thread(u64 thread, u64 simd_group, u64 group) {
  thread_now = thread;
  if (counting && any_thread && (group != group_now || simd_group != simd_now)) {
    for (Buffer& buffer : buffers) {
      for (Counter& counter : buffer.counters) {
        group != group_now ? counter.end_group() : counter.end_simd_group();
      }
    }
  }
  any_thread = true;
  simd_now = simd_group;
  group_now = group;
  active = true;
}
jmp_buf* trace_exit() { return &way_out; }
void trace_leave() { active = false; }

// Apple's GPUs flush 32-bit subnormal inputs and results of an instruction to zero. These
// processors have a mode that does the same. 16-bit floats keep their subnormals in both: the
// compiler widens them by integer arithmetic or by an instruction that ignores the mode.
static void set_float_mode(bool of_the_kernel) {
  if (!flushing) {
    return;
  }
#if defined(__x86_64__)
  const unsigned both = 0x8040; // FTZ and DAZ of MXCSR
  const unsigned now = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(of_the_kernel ? now | both : now & ~both);
#elif defined(__aarch64__)
  const u64 fz = u64(1) << 24; // FZ of FPCR; FZ16 stays as it is
  u64 now;
  asm volatile("mrs %0, fpcr" : "=r"(now));
  now = of_the_kernel ? now | fz : now & ~fz;
  asm volatile("msr fpcr, %0" : : "r"(now));
#else
#error "flushing subnormal numbers to zero is not implemented for this processor"
#endif
}

// `frame`: of the function that runs the threads.
void trace_walk(void* frame) {
  stack_top = (uintptr_t)frame;
  set_float_mode(true);
}
void trace_walked() { set_float_mode(false); }

// A page takes memory when it is first written, so an untouched array of gigabytes takes none.
void* trace_allocate(u64 number, u64 size) {
  void* wanted = (void*)((FIRST_RANGE + number) * APART);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  void* got = mmap(wanted, size + 1, PROT_READ | PROT_WRITE, flags, -1, 0);
  return got == MAP_FAILED ? nullptr : got;
}
void trace_free(void* start, u64 size) { munmap(start, size + 1); }

// role: 0 an input, 1 an output, 2 an output that the host has filled.
void trace_begin(
    u64 number, void** starts, const u64* sizes, const uint8_t* role, int track, int count_lines,
    int flush) {
  failures.clear();
  failure_count = 0;
  any_thread = false;
  tracking = track;
  counting = count_lines;
  flushing = flush;
  buffers.assign(number, Buffer{});
  for (u64 b = 0; b < number; ++b) {
    Buffer& buffer = buffers[b];
    buffer.start = (uintptr_t)starts[b];
    buffer.size = sizes[b];
    buffer.output = role[b] != 0;
    if (tracking && buffer.output) {
      buffer.writer.assign(sizes[b], role[b] == 2 ? HOST : NOBODY);
    }
    for (Counter& counter : buffer.counters) {
      counter.touched.assign(counting ? sizes[b] : 0, false);
    }
  }
}

// Returns the number of failures; stores the first ones, the traffic and the number of unwritten
// bytes per buffer.
u64 trace_end(u64 room, Failure* first, Traffic* traffic, u64* unwritten) {
  for (size_t b = 0; b < buffers.size(); ++b) {
    Buffer& buffer = buffers[b];
    unwritten[b] = std::count(buffer.writer.begin(), buffer.writer.end(), uint8_t(NOBODY));
    for (int write = 0; write < 2; ++write) {
      buffer.counters[write].end_group();
      traffic[2 * b + write] = buffer.counters[write].total;
    }
  }
  std::copy_n(failures.begin(), std::min<u64>(room, failures.size()), first);
  return failure_count;
}
}
