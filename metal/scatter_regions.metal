    // Sums the pooled values that refer to each position (zero if there are none), for large windows and windows of different
    // sizes. Each output is written once.
    //   values, indices (B, OD, OH, OW, C); covering (D + H + W, 2): for each position of an axis the range (first, stop) of
    //   the windows that cover it; window (kernel, dilation) and starts (stride, padding) as in `pool_any`, for window offsets;
    //   size = (D, H, W, steps): the windows first, first + step, first + 2 * step, ... cover the position
    //   ->  out (B, D, H, W, C)
    // One thread: V neighbouring channels of COLUMNS neighbouring outputs. Grid: (W / COLUMNS * C / V, D * H, B).
    const int D = PLANAR ? 1 : size[0], H = size[1], W = size[2], C = ONE ? V : values_shape[4];
    const int OD = PLANAR ? 1 : values_shape[1], OH = values_shape[2], OW = values_shape[3];
    const WorkItem<N> s =
        work_item_of<N, V>(thread_position_in_grid, values_shape[0], D, H, (W - 1) / COLUMNS + 1, C);
    if (!s.exists) {
      return;
    }
    // The columns of the last thread end with the row. It does not store those that the thread before it stores.
    const N unshared = s.w * COLUMNS, w0 = unshared < W - COLUMNS ? unshared : N(W - COLUMNS);
    const N row = (s.d * H + s.h) * W, pooled = s.b * OD * OH * OW;

    // The windows that cover the outputs. Neither `first` nor `stop` decreases from one column to the next.
    const auto cd = covering + 2 * s.d, ch = covering + 2 * (N(D) + s.h), cw = covering + 2 * (N(D) + H + w0);
    N first[COLUMNS], stop[COLUMNS];
    #pragma unroll
    for (int x = 0; x < COLUMNS; ++x) {
      first[x] = cw[2 * x];
      stop[x] = cw[2 * x + 1];
    }

    // Loads and comparison.
    ACC sum[COLUMNS][V] = {};
    for (N od = cd[0]; od < cd[1]; od += size[3]) {
      for (N oh = ch[0]; oh < ch[1]; oh += size[4]) {
        const N line = FLAT ? N(0)
                            : (quotient(s.d + starts[3] - od * starts[0], window[3]) * window[1] +
                               quotient(s.h + starts[4] - oh * starts[1], window[4])) * window[2];
        for (N ow = first[0]; ow < stop[COLUMNS - 1]; ow += size[5]) {
          const N from = (pooled + (od * OH + oh) * OW + ow) * C + s.c;
          const auto value = values + from;
          const auto index = indices + from;
          #pragma unroll
          for (int x = 0; x < COLUMNS; ++x) {
            const N w = w0 + x;
            const N match = FLAT ? row + w : line + quotient(w + starts[5] - ow * starts[2], window[5]);
            const bool covers = COLUMNS == 1 || (ow >= first[x] && ow < stop[x]);
            #pragma unroll
            for (int v = 0; v < V; ++v) {
              const ACC more = ACC(sum[x][v] + ACC(value[v]));
              sum[x][v] = covers & (N(index[v]) == match) ? more : sum[x][v];
            }
          }
        }
      }
    }

    // Store.
    #pragma unroll
    for (int x = 0; x < COLUMNS; ++x) {
      if (w0 + x >= unshared) {
        const auto to = out + (((s.b * D * H * W) + row + w0 + x) * C + s.c);
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          to[v] = T(sum[x][v]);
        }
      }
    }
