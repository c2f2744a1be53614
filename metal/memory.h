// Reading and writing arrays. A thread reads everything that it needs of a row in one access, and writes it in one
// access, as wide as the memory allows.

// COUNT neighbouring columns, from `first` on, of the row that begins at `row` and has `length` of them; `lanes` channels
// of each. What stands for a column outside the row may be anything. With RUN all channels are loaded, as one run of
// numbers; the array has `size` of them, no fewer than the run.
template <int COUNT, int V, bool RUN, bool INSIDE, typename T, typename P, typename OFFSET, typename AXIS>
inline void load_columns(
    thread T (*to)[V], P from, OFFSET row, AXIS first, int length, int C, int lanes, OFFSET size) {
  if (RUN) {
    const OFFSET start = row + OFFSET(first) * V, last = size - COUNT * V;
    const OFFSET near = INSIDE ? start : start < 0 ? OFFSET(0) : start > last ? last : start;
    const P run = from + near;
    if (!load_words<COUNT * V>(to[0], from, run, COUNT * V, uint(length) * V | uint(first) * V)) {
      #pragma unroll
      for (int n = 0; n < COUNT * V; ++n) {
        to[n / V][n % V] = T(run[n]);
      }
    }
    if (INSIDE || near == start) {
      return; // always, but for threads at the ends of the array
    }
  }
  #pragma unroll
  for (int e = 0; e < COUNT; ++e) {
    const AXIS column = INSIDE ? first + e : AXIS(clamped(first + e, length));
    const P source = from + (row + OFFSET(column) * C);
    const bool there = INSIDE || !RUN || within(first + e, length);
    if (!load_words<V>(to[e], from, source, there ? lanes : 0, uint(C))) {
      #pragma unroll
      for (int v = 0; v < V; ++v) {
        to[e][v] = v < lanes && there ? T(source[v]) : T(0);
      }
    }
  }
}

// Puts the outermost column of a row in place of those outside, at most `LEFT` of them before it.
template <int COUNT, int V, int LEFT, bool ANY, typename T, typename AXIS>
inline void outermost_again(thread T (*row)[V], AXIS first, int length) {
  #pragma unroll
  for (int e = ANY ? LEFT - 1 : -1; e >= 0; --e) {
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      row[e][v] = first + e < 0 ? row[e + 1][v] : row[e][v];
    }
  }
  #pragma unroll
  for (int e = ANY ? 1 : COUNT; e < COUNT; ++e) {
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      row[e][v] = first + e >= length ? row[e - 1][v] : row[e][v];
    }
  }
}

// The indices of COUNT neighbouring pooled values of a row, the first of them `ahead` columns after the thread's own X,
// which are `OWN`: all in the row. -1 for those outside the row.
template <
    int COUNT, int V, int X, bool RUN, bool INSIDE, bool OWN, typename N, typename P, typename OFFSET, typename AXIS>
inline void load_indices(
    thread N (*to)[V], P from, OFFSET row, AXIS own, AXIS ahead, int length, int C, int lanes, OFFSET size) {
  load_columns<COUNT, V, RUN, INSIDE>(to, from, row, own + ahead, length, C, lanes, size);
  #pragma unroll
  for (int n = 0; n < COUNT; ++n) {
    const bool inside = (OWN && ahead + n >= 0 && ahead + n < X) || within(own + ahead + n, length);
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      to[n][v] = inside ? to[n][v] : N(-1);
    }
  }
}

// Writes COUNT neighbouring columns, but none outside the row.
template <int COUNT, int V, bool RUN, bool INSIDE, typename T, typename P, typename OFFSET, typename AXIS>
inline void store_columns(P to, const thread T (*from)[V], OFFSET row, AXIS first, int length, int C, int lanes) {
  if (RUN && INSIDE) {
    const P run = to + (row + OFFSET(first) * V);
    if (!store_words<COUNT * V>(to, run, from[0], COUNT * V, uint(length) * V | uint(first) * V)) {
      #pragma unroll
      for (int n = 0; n < COUNT * V; ++n) {
        run[n] = from[n / V][n % V];
      }
    }
    return;
  }
  #pragma unroll
  for (int e = 0; e < COUNT; ++e) {
    if (INSIDE || within(first + e, length)) {
      const P target = to + (row + OFFSET(first + e) * C);
      if (!store_words<V>(to, target, from[e], lanes, uint(C))) {
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          if (v < lanes) {
            target[v] = from[e][v];
          }
        }
      }
    }
  }
}

// A bit for each of `count` numbers, in words of 32.
template <typename N> inline N words_of(N count) { return (count + 31) / 32; }
template <typename P, typename N> inline bool has_bit(P words, N number) {
  return (words[number / 32] >> uint(number % 32)) & 1u;
}
