    // Scatters pooled values to their positions, zero elsewhere. If several values have the same position, the last one is
    // written or, with SUM, their sum. Each output is written once.
    //   values, indices (B, OD, OH, OW, C), outside_window, winner_bits, size = (D, H, W)  ->  out (B, D, H, W, C)
    // One thread: V neighbouring channels of one tile of outputs. A tile is one stride long on each axis, and tile t starts
    // where window t would start without padding. Grid: (tiles along W * C / V, tiles along D * tiles along H, B).
    const int D = PLANAR ? 1 : size[0], H = size[1], W = size[2], C = ONE ? V : indices_shape[4];
    const int OD = PLANAR ? 1 : indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint3 at = thread_position_in_grid;
    const int TD = tiles(D, SD, OD), TH = tiles(H, SH, OH), TW = tiles(W, SW, OW), TILE = SD * SH * SW;
    const WorkItem<N> s = work_item_of<N, V>(at, TD, TH, TW, C, indices_shape[0]);
    if (s.beyond) {
      return;
    }
    const N d0 = s.d * SD, h0 = s.h * SH, w0 = s.w * SW;
    const N plane = N(at.z) * D * H * W, pooled = N(at.z) * OD * OH * OW;

    if (FLAT && !SUM && outside_window[N(at.z) * (C / V) + s.c / V]) {
      // An index in this channel group is outside its window. The thread writes zero to the positions of its tile that no
      // index refers to, and its pooled value if that is the last one at its position, which may be anywhere in the plane.
      const N elements = N(D) * H * W, count = N(OD) * OH * OW, number = (s.d * OH + s.h) * OW + s.w;
      const N words = words_of(elements) + words_of(count);
      for (int n = 0; n < V * TILE; ++n) {
        const int v = n / TILE, o = n % TILE;
        const N d = d0 + o / (SH * SW), h = h0 + o / SW % SH, w = w0 + o % SW, position = (d * H + h) * W + w;
        const bool there = within(d, D) && within(h, H) && within(w, W);
        if (there && !has_bit(winner_bits + (N(at.z) * C + s.c + v) * words, position)) {
          out[(plane + position) * C + s.c + v] = T(0);
        }
      }
      for (int v = 0; v < V; ++v) {
        const auto lost = winner_bits + ((N(at.z) * C + s.c + v) * words + words_of(elements));
        if (within(s.d, OD) && within(s.h, OH) && within(s.w, OW) && !has_bit(lost, number)) {
          const N from = (pooled + number) * C + s.c + v, index = N(indices[from]);
          if (index >= 0 && index < elements) {
            out[(plane + index) * C + s.c + v] = values[from];
          }
        }
      }
      return;
    }

    ACC result[SD * SH][SW][V];
    #pragma unroll
    for (int r = 0; r < SD * SH; ++r) {
      #pragma unroll
      for (int o = 0; o < SW; ++o) {
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          result[r][o][v] = ACC(0);
        }
      }
    }
    // Loop over the windows that cover the tile, in row-major order; unrolled only for small windows.
    const int ND = covering_count<N>(KD, SD, PD, DD), NH = covering_count<N>(KH, SH, PH, DH);
    const int NW = covering_count<N>(KW, SW, PW, DW), ROWS = KD * KH * KW > 9 ? 1 : ND * NH, COLUMNS = NW > 8 ? 1 : NW;
    #pragma unroll(ROWS)
    for (int row = 0; row < ND * NH; ++row) {
      const N ad = covering_window<N>(row / NH, KD, SD, PD, DD), ah = covering_window<N>(row % NH, KH, SH, PH, DH);
      #pragma unroll(COLUMNS)
      for (int n = 0; n < NW; ++n) {
        const N aw = covering_window<N>(n, KW, SW, PW, DW), od = s.d + ad, oh = s.h + ah, ow = s.w + aw;
        if (within(od, OD) && within(oh, OH) && within(ow, OW)) {
          const N from = (pooled + (od * OH + oh) * OW + ow) * C + s.c;
          const auto value = values + from;
          const auto index = indices + from;
          #pragma unroll
          for (int r = 0; r < SD * SH; ++r) {
            const int kd = element_at<N>(r / SH + PD - ad * SD, KD, DD), kh = element_at<N>(r % SH + PH - ah * SH, KH, DH);
            const N line = FLAT ? ((d0 + r / SH) * H + h0 + r % SH) * W + w0 : (kd * KH + kh) * KW;
            #pragma unroll
            for (int o = 0; o < SW; ++o) {
              const int kw = element_at<N>(o + PW - aw * SW, KW, DW);
              if (kd >= 0 && kh >= 0 && kw >= 0) {
                const N wanted = line + (FLAT ? o : kw);
                #pragma unroll
                for (int v = 0; v < V; ++v) {
                  const ACC given = SUM ? ACC(result[r][o][v] + ACC(value[v])) : ACC(value[v]);
                  result[r][o][v] = N(index[v]) == wanted ? given : result[r][o][v];
                }
              }
            }
          }
        }
      }
    }
    #pragma unroll
    for (int r = 0; r < SD * SH; ++r) {
      #pragma unroll
      for (int o = 0; o < SW; ++o) {
        const N d = d0 + r / SH, h = h0 + r % SH, w = w0 + o;
        if (within(d, D) && within(h, H) && within(w, W)) {
          const auto to = out + ((plane + (d * H + h) * W + w) * C + s.c);
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            to[v] = T(result[r][o][v]);
          }
        }
      }
    }
