// Loads and stores of neighbouring elements, which a compiler can combine. X is the number of columns per thread; if it is
// above 1, V is C and neighbouring columns are contiguous. INSIDE means that no accessed column is outside the row.

// Loads `lanes` channels of COUNT neighbouring columns, starting at column `first`, of the row of `length` columns that
// starts at offset `row`. A column outside the row is replaced by the nearest one or, with X above 1, has unspecified values.
// Contiguous columns are loaded as one run; the array has `size` elements, at least as many as the run.
template <int COUNT, int V, int X, bool INSIDE, typename T, typename P, typename OFFSET, typename AXIS>
inline void load_columns(
    thread T (*to)[V], P from, OFFSET row, AXIS first, int length, int C, int lanes, OFFSET size) {
  if (X > 1) {
    const OFFSET start = row + OFFSET(first) * V, last = size - COUNT * V;
    const OFFSET near = INSIDE ? start : start < 0 ? OFFSET(0) : start > last ? last : start;
    const P run = from + near;
    #pragma unroll
    for (int n = 0; n < COUNT * V; ++n) {
      to[n / V][n % V] = T(run[n]);
    }
    if (INSIDE || near == start) {
      return; // all threads except those at the ends of the array
    }
  }
  #pragma unroll
  for (int e = 0; e < COUNT; ++e) {
    const AXIS column = INSIDE ? first + e : AXIS(clamped(first + e, length));
    const P source = from + (row + OFFSET(column) * C);
    const bool there = INSIDE || X == 1 || within(first + e, length);
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      to[e][v] = v < lanes && there ? T(source[v]) : T(0);
    }
  }
}

// Replaces columns outside the row, at most LEFT of them before it, by the nearest column inside. If ANY is false, there
// are none.
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

// Loads the indices of COUNT neighbouring pooled values of a row, starting `ahead` columns after column `w`, the first of
// the thread's X columns. FULL means that these X columns are inside the row. Indices outside the row become -1 if `check`.
template <
    int COUNT, int V, int X, bool INSIDE, bool FULL, typename N, typename P, typename OFFSET, typename AXIS>
inline void load_indices(
    thread N (*to)[V], P from, OFFSET row, AXIS w, AXIS ahead, int length, int C, int lanes, OFFSET size, bool check) {
  load_columns<COUNT, V, X, INSIDE>(to, from, row, w + ahead, length, C, lanes, size);
  #pragma unroll
  for (int n = 0; n < COUNT; ++n) {
    const bool inside = !check || (FULL && ahead + n >= 0 && ahead + n < X) || within(w + ahead + n, length);
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      to[n][v] = inside ? to[n][v] : N(-1);
    }
  }
}

// Stores COUNT neighbouring columns, except those outside the row.
template <int COUNT, int V, int X, bool INSIDE, typename T, typename P, typename OFFSET, typename AXIS>
inline void store_columns(P to, const thread T (*from)[V], OFFSET row, AXIS first, int length, int C, int lanes) {
  if (X > 1 && INSIDE) {
    const P run = to + (row + OFFSET(first) * V);
    #pragma unroll
    for (int n = 0; n < COUNT * V; ++n) {
      run[n] = from[n / V][n % V];
    }
    return;
  }
  #pragma unroll
  for (int e = 0; e < COUNT; ++e) {
    if (INSIDE || within(first + e, length)) {
      const P target = to + (row + OFFSET(first + e) * C);
      #pragma unroll
      for (int v = 0; v < V; ++v) {
        if (v < lanes) {
          target[v] = from[e][v];
        }
      }
    }
  }
}

// Stores the indices of COUNT neighbouring pooled values of a row. With VALUES, indices are not needed: their array has one
// element, which becomes 0.
template <bool VALUES, int COUNT, int V, int X, bool INSIDE, typename I, typename P, typename OFFSET, typename AXIS>
inline void store_indices(P to, const thread I (*from)[V], OFFSET row, AXIS first, int length, int C, int lanes) {
  if (!VALUES) {
    store_columns<COUNT, V, X, INSIDE>(to, from, row, first, length, C, lanes);
  } else if (row == 0 && first == 0) {
    to[0] = I(0);
  }
}

// Bit sets: `count` bits, at least one, in 32-bit words.
template <typename N> inline N words_of(N count) { return (count - 1) / 32 + 1; }
template <typename P, typename N> inline bool has_bit(P words, N number) {
  return (words[number / 32] >> uint(number % 32)) & 1u;
}
