    // Sums the pooled values that refer to each position (zero if there are none), for large windows or windows of different
    // sizes. Each output is written once, by one thread.
    //   values, indices (B, OD, OH, OW, C), size = (D, H, W), window and starts as in `pool_any`,
    //   covering (D + H + W, 2): for each position of an axis the range (first, stop) of the windows that may cover it;
    //   used only with REGIONS  ->  out (B, D, H, W, C)
    // One thread: V neighbouring channels of X neighbouring outputs. Grid: (W / X * channel groups, D * H, B).
    const int D = size[0], H = size[1], W = size[2], C = ONE ? V : values_shape[4];
    const int OD = values_shape[1], OH = values_shape[2], OW = values_shape[3];
    const uint3 at = thread_position_in_grid;
    const WorkItem<AXIS> s = work_item_of<AXIS, V, X, ONE, PLANAR>(at, D, H, W, C, values_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = TAIL && C - s.c < V ? C - s.c : V;
    const AXIS last = s.w + X - 1 < W ? s.w + X - 1 : AXIS(W - 1);
    const OFFSET pooled = OFFSET(at.z) * OD * OH * OW;
    const INDEX position = INDEX(at.y) * W + INDEX(s.w);
    Cover<AXIS> cd, ch, cw;
    if (REGIONS) {
      const OFFSET row = OFFSET(D) + OFFSET(s.h), columns = OFFSET(D) + H;
      cd = cover_between<AXIS>(covering, OFFSET(s.d), OFFSET(s.d));
      ch = cover_between<AXIS>(covering, row, row);
      cw = cover_between<AXIS>(covering, columns + OFFSET(s.w), columns + OFFSET(last));
    } else {
      cd = cover_of<DILATED>(s.d, s.d, window[0], starts[0], starts[3], window[3], OD);
      ch = cover_of<DILATED>(s.h, s.h, window[1], starts[1], starts[4], window[4], OH);
      cw = cover_of<DILATED>(s.w, last, window[2], starts[2], starts[5], window[5], OW);
    }

    ACC sum[X][V];
    #pragma unroll
    for (int i = 0; i < X; ++i) {
      #pragma unroll
      for (int v = 0; v < V; ++v) {
        sum[i][v] = ACC(0);
      }
    }
    for (int nd = 0; nd < cd.count; ++nd) {
      const AXIS od = window_of<DILATED>(cd, nd);
      for (int nh = 0; nh < (DILATED && od < 0 ? 0 : ch.count); ++nh) {
        const AXIS oh = window_of<DILATED>(ch, nh);
        if (DILATED && oh < 0) {
          continue;
        }
        const OFFSET row = (pooled + (OFFSET(od) * OH + OFFSET(oh)) * OW) * C + s.c;
        // The offset of the first window element in the output's row. If there is none, -2^30, which matches no index.
        int line = 0;
        if (!FLAT) {
          const int kd = element_of<AXIS>(s.d + starts[3] - od * starts[0], window[0], window[3]);
          const int kh = element_of<AXIS>(s.h + starts[4] - oh * starts[1], window[1], window[4]);
          line = kd < 0 || kh < 0 ? -(1 << 30) : (kd * window[1] + kh) * window[2];
        }
        for (int nw = 0; nw < cw.count; ++nw) {
          const AXIS ow = window_of<DILATED>(cw, nw);
          if (DILATED && ow < 0) {
            continue;
          }
          T value[1][V];
          INDEX index[1][V];
          load_columns<1, V, 1, true>(value, values, row, ow, OW, C, lanes, OFFSET(0));
          load_columns<1, V, 1, true>(index, indices, row, ow, OW, C, lanes, OFFSET(0));
          const AXIS start = ow * starts[2] - starts[5] - s.w; // of the window, relative to the thread's first output
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            INDEX named = index[0][v]; // if not FLAT, converted to the number of an output of this thread
            if (!FLAT) {
              const int kw = int(named) - line;
              named = within(kw, window[2]) ? INDEX(start + AXIS(kw) * window[5]) : INDEX(-1);
            }
            #pragma unroll
            for (int i = 0; i < X; ++i) {
              sum[i][v] = named == (FLAT ? position + i : INDEX(i)) ? ACC(sum[i][v] + ACC(value[0][v])) : sum[i][v];
            }
          }
        }
      }
    }
    T written[X][V];
    #pragma unroll
    for (int i = 0; i < X; ++i) {
      #pragma unroll
      for (int v = 0; v < V; ++v) {
        written[i][v] = T(sum[i][v]);
      }
    }
    const OFFSET to = (OFFSET(at.z) * D * H + at.y) * W * C + s.c;
    store_columns<X, V, X, EVEN>(out, written, to, s.w, W, C, lanes);
