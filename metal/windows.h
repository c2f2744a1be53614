// Work items and windows: the outputs that one thread computes, and the elements that a window covers. The name of a
// window constant is its kind (K kernel, S stride, P padding, D dilation) and its axis (D depth, H height, W width).
// Coordinates on an axis, which may be outside the plane, have type AXIS: 64 bits if 32 could overflow.
//
// Template arguments of the kernels:
//   FLAT     indices are flat, not window offsets
//   ONE      V is C, so there is one channel group
//   TAIL     the last channel group has fewer than V channels
//   PLANAR   all arrays have depth 1
//   EVEN     X divides the number of columns
//   INSIDE   no accessed column or window element is outside the plane
//   WHOLE    the tiles cover the output exactly
//   OUTSIDE  indices may be outside their windows
//   VALUES   values are stored, but no indices
//   OFFSET   type of offsets into arrays; INDEX, NAMED and WHERE are types of indices

// The work item of one thread: V channels, starting at `c`, of X columns, starting at `w`, in row `h` of layer `d`.
template <typename AXIS> struct WorkItem {
  AXIS d, h, w;
  int c, group; // group: c / V
  bool beyond;  // outside the grid, because CUDA runs whole blocks
};

template <typename AXIS, int V, int X, bool ONE, bool PLANAR>
inline WorkItem<AXIS> work_item_of(uint3 at, int D, int H, int W, int C, int B) {
  const uint groups = ONE ? 1 : uint(C + V - 1) / V;
  WorkItem<AXIS> s;
  s.group = ONE ? 0 : int(at.x % groups);
  s.c = s.group * V;
  s.w = AXIS(ONE ? at.x : at.x / groups) * X;
  s.d = PLANAR ? 0 : int(at.y / uint(H));
  s.h = PLANAR ? int(at.y) : int(at.y % uint(H));
  s.beyond = at.x >= (uint(W) + (X - 1)) / X * groups || at.y >= uint(D) * uint(H) || at.z >= uint(B);
  return s;
}

// A coordinate, clamped to the positions of an axis.
template <typename AXIS> inline int clamped(AXIS at, int length) { return int(at < 0 ? 0 : at >= length ? length - 1 : at); }

inline bool within(int number, int count) { return uint(number) < uint(count); }
inline bool within(int64_t number, int count) { return number >= 0 && number < count; }

// The number of the window element nearest to element k among those inside an axis of `length` positions. The elements
// start at `start`, which is at most `padding` positions before the axis, and are `step` positions apart.
template <typename AXIS> inline int nearest_inside(int k, AXIS start, AXIS step, AXIS length, AXIS padding) {
  if (k * step < padding) {
    const int least = start < 0 ? int((step - 1 - start) / step) : 0;
    k = k < least ? least : k;
  }
  const AXIS most = (length - 1 - start) / step;
  return int(k > most ? most : k);
}

// Whether a window has an element inside the axis. Only a dilated window can have none.
template <typename AXIS> inline bool meets(AXIS start, AXIS step, int K, AXIS length) {
  const AXIS least = start < 0 ? (step - 1 - start) / step : 0;
  return step == 1 || (least < K && start + least * step < length);
}

// The number of tiles, each one stride long, that cover an axis; at least the number of windows.
inline int tiles(int length, int stride, int windows) {
  const int covering = int((uint(length) + uint(stride) - 1) / uint(stride));
  return covering > windows ? covering : windows;
}

// The windows that may cover positions of a tile. Tile t starts where window t would start without padding.
// covering_count is the number of these windows, and covering_window(n, ...) + t is the number of the n-th one. If dilation
// exceeds the stride, there is one window per window element; otherwise these are all windows from the first to the last
// one that covers a position.
template <typename AXIS> constexpr int covering_count(int K, AXIS S, AXIS P, AXIS D) {
  return D > S ? K : int(((K - 1) * D - P) / S + (S - 1 + P) / S + 1);
}
template <typename AXIS> inline AXIS covering_window(int n, int K, AXIS S, AXIS P, AXIS D) {
  if (D > S) {
    const AXIS ahead = P - (K - 1 - n) * D; // minus the position of element K - 1 - n of window 0
    return ahead > 0 ? (ahead + S - 1) / S : -(-ahead / S);
  }
  return n - ((K - 1) * D - P) / S;
}

// The number of the window element that is `ahead` positions after the start of the window, or -1.
template <typename AXIS> inline int element_at(AXIS ahead, int K, AXIS step) {
  return ahead >= 0 && ahead % step == 0 && ahead / step < K ? int(ahead / step) : -1;
}

// The same for arguments known only at run time; avoids the division if there is no dilation.
template <typename AXIS> inline int element_of(AXIS ahead, int K, AXIS step) {
  AXIS k = ahead;
  if (step > 1) { // the same for all threads
    k = element_at(ahead, K, step);
  }
  return within(k, K) ? int(k) : -1;
}

// The elements of a window inside an axis: `count` elements, `step` positions apart, starting at position `first`, after
// `skipped` elements before the axis.
template <typename AXIS> struct Run {
  AXIS first;
  int step, count, skipped;
};

template <typename AXIS> inline Run<AXIS> run_of(AXIS window, int K, int stride, int padding, int step, int length) {
  const AXIS start = window * stride - padding, last = (length - 1 - start) / step;
  Run<AXIS> run;
  run.step = step;
  run.skipped = start < 0 ? int((step - 1 - start) / step) : 0;
  run.first = start + AXIS(run.skipped) * step;
  run.count = int(last < K - 1 ? last : AXIS(K - 1)) - run.skipped + 1;
  run.count = run.count < 0 ? 0 : run.count;
  return run;
}

template <typename AXIS, typename P, typename OFFSET> inline Run<AXIS> run_between(P bounds, OFFSET at, int columns) {
  Run<AXIS> run;
  run.step = 1;
  run.skipped = 0;
  run.first = bounds[at];
  run.count = bounds[at + columns] - bounds[at];
  return run;
}

// The windows that may cover the positions from `first` to `last` of an axis: `count` windows, starting at window `first`.
// With DILATED, dilation may exceed the stride. On an axis where it does, `count` is the number of elements of a window, and
// the n-th window is the one that starts `first + n * step` positions after window 0, if there is one.
template <typename AXIS> struct Cover {
  AXIS first, step;
  int count, stride, windows;
};

template <bool DILATED, typename AXIS>
inline Cover<AXIS> cover_of(AXIS first, AXIS last, int K, int stride, int padding, int step, int windows) {
  Cover<AXIS> cover;
  cover.first = 0;
  cover.count = cover.windows = windows;
  cover.stride = stride;
  cover.step = 0;
  if (DILATED && step > stride) { // the same for all threads
    cover.first = first + padding - AXIS(K - 1) * step;
    cover.step = step;
    cover.count = K;
  } else if (windows > 1) { // the same for all threads; saves the divisions for one window
    const AXIS reached = first + padding - AXIS(K - 1) * step, begun = (last + padding) / stride + 1;
    cover.first = reached > 0 ? (reached + stride - 1) / stride : 0;
    cover.count = int((begun < windows ? begun : windows) - cover.first);
  }
  return cover;
}

template <typename AXIS, typename P, typename OFFSET> inline Cover<AXIS> cover_between(P covering, OFFSET first, OFFSET last) {
  Cover<AXIS> cover;
  cover.first = covering[2 * first];
  cover.count = int(covering[2 * last + 1] - cover.first);
  cover.step = 0;
  cover.stride = cover.windows = 1;
  return cover;
}

// The n-th window of a cover, or -1 if there is none.
template <bool DILATED, typename AXIS> inline AXIS window_of(Cover<AXIS> cover, int n) {
  if (!DILATED || cover.step == 0) { // the same for all threads
    return cover.first + n;
  }
  const AXIS start = cover.first + n * cover.step, window = start / cover.stride;
  return start >= 0 && window * cover.stride == start && window < cover.windows ? window : AXIS(-1);
}

// Whether element k of a window is also an element of a window of the same size that starts `later` elements after it.
template <int K> inline bool both_have(int k, int later) {
  return later == 0 || (later > 0 ? k >= later : k < K + later);
}

// kd * layer + kh * row + kw * column for window element `offset` = (kd, kh, kw); avoids divisions for few rows.
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

// The flat position of an offset in a window, or -1 if it is outside; `window` and `starts` as in pool_any.metal.
template <typename INDEX, typename AXIS, typename P>
inline INDEX position_of(INDEX offset, AXIS od, AXIS oh, AXIS ow, P window, P starts, int D, int H, int W) {
  const int n = int(offset), line = n / window[2], kd = line / window[1], kh = line - kd * window[1];
  const AXIS d = od * starts[0] - starts[3] + AXIS(kd) * window[3];
  const AXIS h = oh * starts[1] - starts[4] + AXIS(kh) * window[4];
  const AXIS w = ow * starts[2] - starts[5] + AXIS(n - line * window[2]) * window[5];
  const bool inside = kd < window[0] && within(d, D) && within(h, H) && within(w, W);
  return inside ? (INDEX(d) * H + INDEX(h)) * W + INDEX(w) : INDEX(-1);
}
