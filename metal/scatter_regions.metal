    // Sums the pooled values that refer to each position (zero if there are none), for large windows or windows of different
    // sizes. Each output is written once, by one thread.
    //   values, indices (B, OD, OH, OW, C), size = (D, H, W), window and starts as in `pool_any`,
    //   covering (D + H + W, 2): for each position of an axis the range (first, stop) of the windows that may cover it;
    //   used only with REGIONS  ->  out (B, D, H, W, C)
    // One thread: V neighbouring channels of one output. Grid: (W * C / V, D * H, B).
    const int D = PLANAR ? 1 : size[0], H = size[1], W = size[2], C = ONE ? V : values_shape[4];
    const int OD = PLANAR ? 1 : values_shape[1], OH = values_shape[2], OW = values_shape[3];
    const uint3 at = thread_position_in_grid;
    const WorkItem<N> s = work_item_of<N, V>(at, D, H, W, C, values_shape[0]);
    if (s.beyond) {
      return;
    }
    const N position = N(at.y) * W + s.w;
    Cover<N> cd, ch, cw;
    if (REGIONS) {
      cd = cover_between<N>(covering, s.d);
      ch = cover_between<N>(covering, N(D) + s.h);
      cw = cover_between<N>(covering, N(D) + H + s.w);
    } else {
      cd = cover_of<DILATED>(s.d, window[0], starts[0], starts[3], window[3], OD);
      ch = cover_of<DILATED>(s.h, window[1], starts[1], starts[4], window[4], OH);
      cw = cover_of<DILATED>(s.w, window[2], starts[2], starts[5], window[5], OW);
    }

    ACC sum[V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      sum[v] = ACC(0);
    }
    for (int nd = 0; nd < cd.count; ++nd) {
      const N od = window_of<DILATED>(cd, nd);
      for (int nh = 0; nh < (DILATED && od < 0 ? 0 : ch.count); ++nh) {
        const N oh = window_of<DILATED>(ch, nh);
        if (DILATED && oh < 0) {
          continue;
        }
        // The offset of the first window element in the output's row. If there is none, -2^30, which matches no index.
        int line = 0;
        if (!FLAT) {
          const int kd = element_of<N>(s.d + starts[3] - od * starts[0], window[0], window[3]);
          const int kh = element_of<N>(s.h + starts[4] - oh * starts[1], window[1], window[4]);
          line = kd < 0 || kh < 0 ? -(1 << 30) : (kd * window[1] + kh) * window[2];
        }
        for (int nw = 0; nw < cw.count; ++nw) {
          const N ow = window_of<DILATED>(cw, nw);
          if (DILATED && ow < 0) {
            continue;
          }
          N wanted = position;
          if (!FLAT) {
            const int kw = element_of<N>(s.w + starts[5] - ow * starts[2], window[2], window[5]);
            wanted = kw < 0 ? -1 : line + kw;
          }
          const N from = (((N(at.z) * OD + od) * OH + oh) * OW + ow) * C + s.c;
          const auto value = values + from;
          const auto index = indices + from;
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            const ACC given = ACC(sum[v] + ACC(value[v]));
            sum[v] = N(index[v]) == wanted ? given : sum[v];
          }
        }
      }
    }
    const N to = ((N(at.z) * D * H + at.y) * W + s.w) * C + s.c;
    const auto target = out + to;
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      target[v] = T(sum[v]);
    }
