    // Sums the pooled values that refer to each position (zero if there are none), for large
    // windows and windows of different sizes. Each output is written once.
    //   values, indices (B, OD, OH, OW, C); covering (D + H + W, 2), used with REGIONS: for each
    //   position of an axis the range (first, stop) of the windows that may cover it;
    //   window = (kernel, stride), used with REGIONS for window offsets; size = (D, H, W, steps):
    //   the distance between consecutive windows that cover a position  ->  out (B, D, H, W, C)
    // One thread: V neighbouring channels of COLUMNS neighbouring outputs.
    // Grid: (W / COLUMNS * C / V, D * H, B).
    const int D = PLANAR ? 1 : size[0], H = size[1], W = size[2], C = ONE ? V : values_shape[4];
    const int OD = PLANAR ? 1 : values_shape[1], OH = values_shape[2], OW = values_shape[3];
    const WorkItem<N> at =
        work_item_of<N, V>(
            thread_position_in_grid, values_shape[0], D, H, (W - 1) / COLUMNS + 1, C);
    if (!at.exists) {
      return;
    }
    // The columns of the last thread end with the row. It does not store those that the thread
    // before it stores.
    const N unshared = at.w * COLUMNS, w0 = unshared < W - COLUMNS ? unshared : N(W - COLUMNS);
    const N row = (at.d * H + at.h) * W, pooled = at.b * OD * OH * OW;

    // The windows that cover the outputs. Neither `first` nor `stop` decreases from one column to
    // the next.
    Range<N> d, h, w[COLUMNS];
    if (REGIONS) {
      d = range_at<N>(covering + 2 * at.d);
      h = range_at<N>(covering + 2 * (D + at.h));
    } else {
      d = covering_windows<N>(at.d + PD, KD, SD, DD, OD);
      h = covering_windows<N>(at.h + PH, KH, SH, DH, OH);
    }
    const auto columns = covering + (REGIONS ? 2 * (N(D) + H + w0) : N(0));
    #pragma unroll
    for (int x = 0; x < COLUMNS; ++x) {
      w[x] = REGIONS ? range_at<N>(columns + 2 * x)
                     : covering_windows<N>(w0 + x + PW, KW, SW, DW, OW);
    }

    // Loads and comparison.
    ACC sum[COLUMNS][V] = {};
    for (N od = d.first; od < d.stop; od += size[3]) {
      for (N oh = h.first; oh < h.stop; oh += size[4]) {
        const N kd = REGIONS ? at.d - od * window[3] : (at.d + PD - od * SD) / DD;
        const N kh = REGIONS ? at.h - oh * window[4] : (at.h + PH - oh * SH) / DH;
        const N line =
            FLAT ? row : (kd * (REGIONS ? window[1] : KH) + kh) * (REGIONS ? window[2] : KW);
        for (N ow = w[0].first; ow < w[COLUMNS - 1].stop; ow += size[5]) {
          const N from = (pooled + (od * OH + oh) * OW + ow) * C + at.c;
          const auto value = values + from;
          const auto index = indices + from;
          #pragma unroll
          for (int x = 0; x < COLUMNS; ++x) {
            const N kw = REGIONS ? w0 + x - ow * window[5] : (w0 + x + PW - ow * SW) / DW;
            const N match = line + (FLAT ? w0 + x : kw);
            const bool covers = COLUMNS == 1 || (ow >= w[x].first && ow < w[x].stop);
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
        const auto to = out + (((at.b * D * H * W) + row + w0 + x) * C + at.c);
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          to[v] = T(sum[x][v]);
        }
      }
    }
