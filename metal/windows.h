// Work items and windows: the outputs that one thread computes, and the elements that a window covers. A constant of
// a window is named by its kind (K kernel, S stride, P padding, D dilation) and its axis (D depth, H height, W width).

// One thread has V neighbouring channels, from `c` on, of X neighbouring columns, from `w` on, in row `h` of layer `d`.
struct WorkItem {
  int d, h, w, c, group; // group: the number of the thread's channels, counted in V
  bool beyond;           // outside the grid: CUDA runs whole blocks
};

template <int V, int X, bool ONE, bool PLANAR>
inline WorkItem work_item_of(uint3 at, int D, int H, int W, int C, int B) {
  const uint groups = ONE ? 1 : uint(C + V - 1) / V;
  WorkItem s;
  s.group = ONE ? 0 : int(at.x % groups);
  s.c = s.group * V;
  s.w = int(ONE ? at.x : at.x / groups) * X;
  s.d = PLANAR ? 0 : int(at.y / uint(H));
  s.h = PLANAR ? int(at.y) : int(at.y % uint(H));
  s.beyond = at.x >= uint(W + X - 1) / X * groups || at.y >= uint(D) * uint(H) || at.z >= uint(B);
  return s;
}

// The position on an axis that is nearest to a coordinate.
inline int clamped(int at, int length) { return at < 0 ? 0 : at >= length ? length - 1 : at; }
template <bool IF> inline int clamped_if(int at, int length) { return IF ? clamped(at, length) : at; }

// Where `count` positions from `first` on end, on an axis of `length`.
inline int end_of(int first, int count, int length) { return first + count < length ? first + count : length; }

inline bool within(int number, int count) { return uint(number) < uint(count); }

// Of the elements of a window, which lie `step` apart from `start` on, the number of the one that is nearest to
// number k among those on an axis of `length`. A window never begins farther than `padding` before the axis.
inline int nearest_inside(int k, int start, int step, int length, int padding) {
  if (k * step < padding) {
    const int least = start < 0 ? (step - 1 - start) / step : 0;
    k = k < least ? least : k;
  }
  const int most = (length - 1 - start) / step;
  return k > most ? most : k;
}

// Whether a window has an element on the axis: only dilation leaves it none.
inline bool meets(int start, int step, int K, int length) {
  const int least = start < 0 ? (step - 1 - start) / step : 0;
  return step == 1 || (least < K && start + least * step < length);
}

// How many tiles as large as the stride cover an axis, and no fewer than there are windows.
inline int tiles(int length, int stride, int windows) {
  const int covering = (length + stride - 1) / stride;
  return covering > windows ? covering : windows;
}

// The number of the window element that lies `ahead` of the start of a window, or -1.
inline int element_at(int ahead, int K, int step) {
  return ahead >= 0 && ahead % step == 0 && ahead / step < K ? ahead / step : -1;
}

// The same for numbers known at run time only, without a division where there is no dilation.
inline int element_of(int ahead, int K, int step) {
  int k = ahead;
  if (step > 1) { // the same for all threads
    k = element_at(ahead, K, step);
  }
  return within(k, K) ? k : -1;
}

// The elements of a window that lie on an axis: `count` of them, `step` apart, after `skipped` that lie before it.
struct Run {
  int first, step, count, skipped;
};

inline Run run_of(int window, int K, int stride, int padding, int step, int length) {
  const int start = window * stride - padding, last = (length - 1 - start) / step;
  Run run;
  run.step = step;
  run.skipped = start < 0 ? (step - 1 - start) / step : 0;
  run.first = start + run.skipped * step;
  run.count = (last < K - 1 ? last : K - 1) - run.skipped + 1;
  run.count = run.count < 0 ? 0 : run.count;
  return run;
}

template <typename P, typename OFFSET> inline Run run_between(P bounds, OFFSET at, int columns) {
  Run run;
  run.step = 1;
  run.skipped = 0;
  run.first = bounds[at];
  run.count = bounds[at + columns] - run.first;
  return run;
}

// The windows that may cover a position from `first` to `last` of an axis.
struct Cover {
  int first, stop;
};

inline Cover cover_of(int first, int last, int K, int stride, int padding, int step, int windows) {
  Cover cover;
  cover.first = 0;
  cover.stop = windows;
  if (windows > 1) { // the same for all threads: one window needs no division
    const int reached = first + padding - (K - 1) * step, begun = (last + padding) / stride + 1;
    cover.first = reached > 0 ? (reached + stride - 1) / stride : 0;
    cover.stop = begun < windows ? begun : windows;
  }
  return cover;
}

template <typename P> inline Cover cover_between(P covering, int first, int last) {
  Cover cover;
  cover.first = covering[2 * first];
  cover.stop = covering[2 * last + 1];
  return cover;
}

// Whether element k of a window of K is one of a window that begins `later` elements after it, too.
template <int K> inline bool both_have(int k, int later) {
  return later == 0 || (later > 0 ? k >= later : k < K + later);
}

// kd * layer + kh * row + kw * column of the window element number `offset`: windows of few rows need no division.
template <int KD, int KH, int KW, typename N> inline N weigh(int offset, N layer, N row, N column) {
  if (KD * KH > 4) {
    const int line = offset / KW, kd = line / KH;
    return N(kd) * layer + N(line - kd * KH) * row + N(offset - line * KW) * column;
  }
  N ahead = N(0);
  #pragma unroll
  for (int line = 1; line < KD * KH; ++line) {
    const N this_line = N(line / KH) * layer + N(line % KH) * row - N(line * KW) * column;
    ahead = offset >= line * KW ? this_line : ahead;
  }
  return ahead + N(offset) * column;
}

// The position that an offset in a window names, or -1; `window` holds its numbers.
template <typename INDEX, typename P>
inline INDEX position_of(INDEX offset, int od, int oh, int ow, P window, int D, int H, int W) {
  const int n = int(offset), line = n / window[2], kd = line / window[1], kh = line - kd * window[1];
  const int d = od * window[3] - window[6] + kd * window[9], h = oh * window[4] - window[7] + kh * window[10];
  const int w = ow * window[5] - window[8] + (n - line * window[2]) * window[11];
  const bool inside = kd < window[0] && within(d, D) && within(h, H) && within(w, W);
  return inside ? (INDEX(d) * H + h) * W + w : INDEX(-1);
}
