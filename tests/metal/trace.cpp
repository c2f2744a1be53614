// What a kernel does to memory, seen access by access.
//
// Kernels are compiled with -fsanitize=thread,undefined but linked with this file instead of the sanitizers'
// libraries: the compiler calls the functions below before every load and store, and wherever the language leaves
// the behaviour open.
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

typedef uint64_t u64;

enum Kind : u64 { // the names stand in metal_host.py
  OUT_OF_BOUNDS = 1,
  WRITE_TO_INPUT,
  SECOND_WRITE,
  READ_OF_ANOTHERS_WRITE,
  WRITE_OVER_ANOTHERS_READ,
  READ_BEFORE_WRITE,
  ATOMIC_AND_PLAIN,
  UNDEFINED_BEHAVIOUR,
};

struct Failure {
  u64 kind, thread, buffer;
  int64_t offset;
};

struct Traffic { // of one buffer in one direction
  u64 bytes, simd_lines, group_lines, unique_bytes;
};

// Who touched a byte: nobody, the host before the kernel, atomic operations, or thread number n as n + FIRST.
enum : uint32_t { NOBODY, HOST, ATOMICS, FIRST };

struct Buffer {
  uintptr_t start;
  u64 size;
  bool output;
  std::vector<uint32_t> writer, reader;
};

static std::vector<Buffer> buffers;
static std::vector<Failure> failures;
static u64 failure_count;
static bool active, tracking, counting, flushing;
static u64 thread_now, simd_now, group_now;
static bool any_thread;
static jmp_buf way_out;
static uintptr_t stack_low, stack_high;

static const u64 LINE = 128;
static std::vector<Traffic> traffic[2];
static std::vector<std::vector<u64>> simd_lines[2];
static std::vector<std::unordered_set<u64>> group_lines[2];
static std::vector<std::vector<bool>> touched[2];

static void fail(Kind kind, u64 buffer, int64_t offset) {
  ++failure_count;
  if (failures.size() < 64) {
    failures.push_back({kind, thread_now, buffer, offset});
  }
}

static void end_simd_group() {
  for (int write = 0; write < 2; ++write) {
    for (size_t b = 0; b < buffers.size(); ++b) {
      std::vector<u64>& lines = simd_lines[write][b];
      std::sort(lines.begin(), lines.end());
      lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
      traffic[write][b].simd_lines += lines.size();
      group_lines[write][b].insert(lines.begin(), lines.end());
      lines.clear();
    }
  }
}

static void end_group() {
  end_simd_group();
  for (int write = 0; write < 2; ++write) {
    for (size_t b = 0; b < buffers.size(); ++b) {
      traffic[write][b].group_lines += group_lines[write][b].size();
      group_lines[write][b].clear();
    }
  }
}

static void count(u64 b, u64 offset, u64 size, bool write) {
  Traffic& t = traffic[write][b];
  t.bytes += size;
  for (u64 line = offset / LINE; line <= (offset + size - 1) / LINE; ++line) {
    simd_lines[write][b].push_back(line);
  }
  for (u64 i = offset; i < offset + size; ++i) {
    if (!touched[write][b][i]) {
      touched[write][b][i] = true;
      ++t.unique_bytes;
    }
  }
}

// The first rule that an access of one byte breaks, or 0.
static u64 broken_rule(Buffer& buffer, u64 byte, bool write, bool atomic) {
  const uint32_t me = atomic ? uint32_t(ATOMICS) : uint32_t(thread_now) + FIRST;
  uint32_t& writer = buffer.writer[byte];
  uint32_t& reader = buffer.reader[byte];
  if (atomic || writer == ATOMICS) {
    if (atomic != (writer == ATOMICS) && writer != HOST) {
      return ATOMIC_AND_PLAIN;
    }
    writer = me;
    return 0;
  }
  if (write) {
    if (writer != NOBODY && writer != HOST) {
      return SECOND_WRITE; // by whichever thread: every output is written once
    }
    if (reader != NOBODY && reader != me) {
      return WRITE_OVER_ANOTHERS_READ;
    }
    writer = me;
    return 0;
  }
  if (writer == NOBODY) {
    return READ_BEFORE_WRITE;
  }
  if (writer != HOST && writer != me) {
    return READ_OF_ANOTHERS_WRITE;
  }
  reader = me;
  return 0;
}

static void access(void* pointer, u64 size, bool write, bool atomic = false) {
  const uintptr_t at = (uintptr_t)pointer;
  if (!active || (at >= stack_low && at < stack_high)) {
    return;
  }
  u64 nearest = 0;
  for (size_t b = 0; b < buffers.size(); ++b) {
    Buffer& buffer = buffers[b];
    const int64_t offset = int64_t(at - buffer.start);
    if (offset > -(int64_t(1) << 39) && offset < (int64_t(1) << 39)) {
      nearest = b;
    }
    if (offset < 0 || u64(offset) + size > buffer.size) {
      continue;
    }
    if (write && !buffer.output) {
      fail(WRITE_TO_INPUT, b, offset);
      active = false;
      longjmp(way_out, 1);
    }
    for (u64 byte = offset; tracking && buffer.output && byte < u64(offset) + size; ++byte) {
      if (u64 kind = broken_rule(buffer, byte, write, atomic)) {
        fail(Kind(kind), b, offset);
        break;
      }
    }
    if (counting) {
      count(b, offset, size, write);
    }
    return;
  }
  fail(OUT_OF_BOUNDS, nearest, int64_t(at - buffers[nearest].start));
  active = false;
  longjmp(way_out, 1); // before the access happens
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
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
void* __tsan_memcpy(void* to, const void* from, u64 n) {
  access(to, n, true);
  access((void*)from, n, false);
  return memcpy(to, from, n);
}
void* __tsan_memset(void* to, int value, u64 n) {
  access(to, n, true);
  return memset(to, value, n);
}
void msl_atomic(void* place, u64 size) { access(place, size, true, true); }

// The compiler calls one of these where it sees undefined behaviour, and then goes on.
#define UNDEFINED(name) void __ubsan_handle_##name() { if (active) { fail(UNDEFINED_BEHAVIOUR, 0, 0); } }
UNDEFINED(add_overflow) UNDEFINED(sub_overflow) UNDEFINED(mul_overflow) UNDEFINED(negate_overflow)
UNDEFINED(divrem_overflow) UNDEFINED(shift_out_of_bounds) UNDEFINED(out_of_bounds)
UNDEFINED(load_invalid_value) UNDEFINED(pointer_overflow) UNDEFINED(float_cast_overflow)
UNDEFINED(vla_bound_not_positive) UNDEFINED(nonnull_arg) UNDEFINED(invalid_builtin)
UNDEFINED(builtin_unreachable) UNDEFINED(missing_return) UNDEFINED(nonnull_return_v1)
// An address that is not a multiple of what it must be: the access might end the process, so the thread ends before it.
void __ubsan_handle_type_mismatch_v1() {
  if (active) {
    fail(UNDEFINED_BEHAVIOUR, 0, 0);
    active = false;
    longjmp(way_out, 1);
  }
}

void trace_thread(u64 thread, u64 simd_group, u64 group) {
  thread_now = thread;
  if (counting && any_thread && group != group_now) {
    end_group();
  } else if (counting && any_thread && simd_group != simd_now) {
    end_simd_group();
  }
  any_thread = true;
  simd_now = simd_group;
  group_now = group;
  active = true;
}
jmp_buf* trace_exit() { return &way_out; }
void trace_leave() { active = false; }

// Apple's GPUs take 32-bit subnormal numbers for zero, in what an instruction reads and in what it gives. So does
// this processor in a mode of its own. 16-bit floats keep theirs, there and here: the compiler widens them by
// integer arithmetic or by an instruction that the mode does not concern.
void trace_float_mode(bool of_the_kernel) {
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
#error "how does this processor take subnormal numbers for zero?"
#endif
}

// Buffers lie 2^40 bytes apart and take memory only where they are written, so that a wrong index never meets a
// neighbour and an array of gigabytes costs nothing.
void* trace_allocate(u64 number, u64 size) {
  void* wanted = (void*)((16 + number) << 40);
  void* got = mmap(
      wanted, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  return got == MAP_FAILED ? nullptr : got;
}
void trace_free(void* start, u64 size) { munmap(start, size + 1); }

// role: 0 an input, 1 an output, 2 an output that the host has filled.
void trace_begin(
    u64 number, void** starts, const u64* sizes, const uint8_t* role, int track, int count_lines, int flush) {
  pthread_attr_t attributes;
  void* stack;
  size_t stack_size;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &stack, &stack_size);
  pthread_attr_destroy(&attributes);
  stack_low = (uintptr_t)stack;
  stack_high = stack_low + stack_size;
  buffers.clear();
  failures.clear();
  failure_count = 0;
  any_thread = false;
  tracking = track;
  counting = count_lines;
  flushing = flush;
  for (u64 b = 0; b < number; ++b) {
    Buffer buffer{(uintptr_t)starts[b], sizes[b], role[b] != 0, {}, {}};
    if (tracking && buffer.output) {
      buffer.writer.assign(sizes[b], role[b] == 2 ? HOST : NOBODY);
      buffer.reader.assign(sizes[b], NOBODY);
    }
    buffers.push_back(std::move(buffer));
  }
  for (int write = 0; write < 2; ++write) {
    traffic[write].assign(number, Traffic{});
    simd_lines[write].assign(number, {});
    group_lines[write].assign(number, {});
    touched[write].assign(number, {});
    for (u64 b = 0; counting && b < number; ++b) {
      touched[write][b].assign(sizes[b], false);
    }
  }
}

// The number of failures, the first ones, traffic (read, write a buffer) and bytes that nobody wrote (a buffer).
u64 trace_end(Failure* first, u64 room, Traffic* counted, u64* unwritten) {
  if (counting) {
    end_group();
  }
  for (size_t b = 0; b < buffers.size(); ++b) {
    unwritten[b] = std::count(buffers[b].writer.begin(), buffers[b].writer.end(), uint32_t(NOBODY));
    counted[2 * b] = traffic[0][b];
    counted[2 * b + 1] = traffic[1][b];
  }
  std::copy_n(failures.begin(), std::min<u64>(room, failures.size()), first);
  return failure_count;
}
}
