    // Scatters pooled values to their positions, zero elsewhere. If several values have the same
    // position, the last one is written or, with SUM, their sum. Each output is written once.
    //   values, indices (B, OD, OH, OW, C), outside_window, winner_bits,
    //   size = (D, H, W, TD, TH, TW)  ->  out (B, D, H, W, C)
    // One thread: V neighbouring channels of one of the TD * TH * TW tiles of outputs. A tile is
    // one stride long on each axis, and tile t starts where window t would start without padding.
    // Grid: (TW * C / V, TD * TH, B).
    const int D = PLANAR ? 1 : size[0], H = size[1], W = size[2], C = ONE ? V : indices_shape[4];
    const int OD = PLANAR ? 1 : indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const int TD = PLANAR ? 1 : size[3], TH = size[4], TW = size[5];
    const WorkItem<N> at =
        work_item_of<N, V>(thread_position_in_grid, indices_shape[0], TD, TH, TW, C);
    if (!at.exists) {
      return;
    }
    const N d0 = at.d * SD, h0 = at.h * SH, w0 = at.w * SW, plane = at.b * D * H * W,
            pooled = at.b * OD * OH * OW;
    const int TILE = SD * SH * SW;

    // Indices outside their windows. If this channel group has one, the thread writes zero to the
    // positions of its tile that no index refers to, and its pooled value if that is the last one
    // at its position, which may be anywhere in the plane.
    if (FLAT && !SUM && outside_window[at.b * (C / V) + at.c / V]) {
      const N elements = N(D) * H * W, words = words_of(elements),
              number = (at.d * OH + at.h) * OW + at.w;
      for (int v = 0; v < V; ++v) {
        const auto bits = winner_bits + (at.b * C + at.c + v) * (words + words_of(N(OD) * OH * OW));
        for (int o = 0; o < TILE; ++o) {
          const N d = d0 + o / (SH * SW), h = h0 + o / SW % SH, w = w0 + o % SW,
                  position = (d * H + h) * W + w;
          if (inside(d, h, w, D, H, W) && !has_bit(bits, position)) {
            out[(plane + position) * C + at.c + v] = T(0);
          }
        }
        if (inside(at.d, at.h, at.w, OD, OH, OW) && !has_bit(bits + words, number)) {
          const N from = (pooled + number) * C + at.c + v, index = N(indices[from]);
          if (index >= 0 && index < elements) {
            out[(plane + index) * C + at.c + v] = values[from];
          }
        }
      }
      return;
    }

    // Loads and comparison, for the windows that cover the tile, in row-major order; unrolled only
    // for small windows.
    ACC result[TILE][V] = {};
    const int ND = covering_count<N>(KD, SD, PD, DD), NH = covering_count<N>(KH, SH, PH, DH);
    const int NW = covering_count<N>(KW, SW, PW, DW), ROWS = KD * KH * KW > 9 ? 1 : ND * NH,
              COLUMNS = NW > 8 ? 1 : NW;
    #pragma unroll(ROWS)
    for (int row = 0; row < ND * NH; ++row) {
      const N ad = covering_window<N>(row / NH, KD, SD, PD, DD),
              ah = covering_window<N>(row % NH, KH, SH, PH, DH);
      #pragma unroll(COLUMNS)
      for (int n = 0; n < NW; ++n) {
        const N aw = covering_window<N>(n, KW, SW, PW, DW), od = at.d + ad, oh = at.h + ah,
                ow = at.w + aw;
        if (inside(od, oh, ow, OD, OH, OW)) {
          const N from = (pooled + (od * OH + oh) * OW + ow) * C + at.c;
          const auto value = values + from;
          const auto index = indices + from;
          #pragma unroll
          for (int o = 0; o < TILE; ++o) {
            const int d = o / (SH * SW), h = o / SW % SH, w = o % SW;
            const int kd = element_at<N>(N(d) + PD - ad * SD, KD, DD),
                      kh = element_at<N>(N(h) + PH - ah * SH, KH, DH);
            const int kw = element_at<N>(N(w) + PW - aw * SW, KW, DW);
            const N match =
                FLAT ? ((d0 + d) * H + h0 + h) * W + w0 + w : N((kd * KH + kh) * KW + kw);
            if (kd >= 0 && kh >= 0 && kw >= 0) {
              #pragma unroll
              for (int v = 0; v < V; ++v) {
                const ACC sum = SUM ? ACC(result[o][v] + ACC(value[v])) : ACC(value[v]);
                result[o][v] = N(index[v]) == match ? sum : result[o][v];
              }
            }
          }
        }
      }
    }

    // Store.
    #pragma unroll
    for (int o = 0; o < TILE; ++o) {
      const N d = d0 + o / (SH * SW), h = h0 + o / SW % SH, w = w0 + o % SW;
      if (inside(d, h, w, D, H, W)) {
        const auto to = out + ((plane + (d * H + h) * W + w) * C + at.c);
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          to[v] = T(result[o][v]);
        }
      }
    }
