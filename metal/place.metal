    // Pooled values at their positions, zero elsewhere; of several that name one position the last one wins, or, with
    // SUM, all are added. Every output is written once.
    //   values, indices (B, OD, OH, OW, C), outside_window, winner_bits, size = (D, H, W)  ->  out (B, D, H, W, C)
    // One thread: V neighbouring channels of X neighbouring tiles of outputs, each as large as the stride. Tile t begins
    // where window t begins, so the windows that cover a position of it are t, t - 1, ..., t - R.
    // Grid: (tiles along W / X * channel groups, tiles along D * tiles along H, B).
    const int D = size[0], H = size[1], W = size[2], C = ONE ? V : indices_shape[4];
    const int OD = indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const int TD = tiles(D, SD, OD), TH = tiles(H, SH, OH), TW = tiles(W, SW, OW);
    const uint3 at = thread_position_in_grid;
    const WorkItem s = work_item_of<V, X, ONE, PLANAR>(at, TD, TH, TW, C, indices_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = TAIL && C - s.c < V ? C - s.c : V;
    const int d0 = s.d * SD, h0 = s.h * SH, w0 = s.w * SW;
    const OFFSET plane = OFFSET(at.z) * D * H * W;
    const OFFSET pooled = OFFSET(at.z) * OD * OH * OW;
    // How many windows before the tile's own, and after it, cover a position of it.
    const int LD = ((KD - 1) * DD - PD) / SD, LH = ((KH - 1) * DH - PH) / SH, LW = ((KW - 1) * DW - PW) / SW;
    const int MD = (SD - 1 + PD) / SD, MH = (SH - 1 + PH) / SH, MW = (SW - 1 + PW) / SW;
    const int AT_ONCE = RUN ? X + LW + MW : 1; // columns of pooled values
    const bool ALONE = WHOLE && LW + MW == 0;  // no window of another column
    const OFFSET all = OFFSET(indices_shape[0]) * OD * OH * OW * C;

    if (OUTSIDE && outside_window[at.z * uint((C + V - 1) / V) + s.group]) {
      // Some index of these channels outside_window, and `winner_bits` says who won: the thread writes zeros of its tiles and those
      // of its pooled values that won a position, wherever that is.
      const INDEX elements = INDEX(D) * H * W, count = INDEX(OD) * OH * OW;
      const int end_d = end_of(d0, SD, D), end_h = end_of(h0, SH, H), end_w = end_of(w0, X * SW, W);
      const int end_c = end_of(s.c, V, C), end_ow = s.d < OD && s.h < OH ? end_of(s.w, X, OW) : 0;
      for (int c = s.c; c < end_c; ++c) {
        const auto named = winner_bits + (OFFSET(at.z) * C + c) * OFFSET(words_of(elements) + words_of(count));
        for (int d = d0; d < end_d; ++d) {
          for (int h = h0; h < end_h; ++h) {
            for (int w = w0; w < end_w; ++w) {
              const INDEX position = (INDEX(d) * H + h) * W + w;
              if (!has_bit(named, position)) {
                out[(plane + OFFSET(position)) * C + c] = T(0);
              }
            }
          }
        }
        for (int ow = s.w; ow < end_ow; ++ow) {
          const INDEX number = (INDEX(s.d) * OH + s.h) * OW + ow;
          const OFFSET from = (pooled + OFFSET(number)) * C + c;
          const INDEX index = INDEX(indices[from]);
          if (index >= 0 && index < elements && !has_bit(named + words_of(elements), number)) {
            out[(plane + OFFSET(index)) * C + c] = values[from];
          }
        }
      }
      return;
    }

    ACC result[SD * SH][X * SW][V];
    #pragma unroll
    for (int r = 0; r < SD * SH; ++r) {
      #pragma unroll
      for (int o = 0; o < X * SW; ++o) {
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          result[r][o][v] = ACC(0);
        }
      }
    }
    // The windows that cover a position of the tiles, in row-major order.
    #pragma unroll
    for (int line = 0; line < (LD + MD + 1) * (LH + MH + 1); ++line) {
      const int ad = line / (LH + MH + 1) - LD, ah = line % (LH + MH + 1) - LH;
      if ((WHOLE && ad == 0 && ah == 0) || (within(s.d + ad, OD) && within(s.h + ah, OH))) {
        const OFFSET row = (pooled + (OFFSET(s.d + ad) * OH + (s.h + ah)) * OW) * C + s.c;
        T value[AT_ONCE][V];
        NAMED index[AT_ONCE][V];
        if (RUN) {
          load_columns<AT_ONCE, V, RUN, ALONE>(value, values, row, s.w - LW, OW, C, lanes, all);
          load_indices<AT_ONCE, V, X, RUN, ALONE, WHOLE>(index, indices, row, s.w, -LW, OW, C, lanes, all);
        }
        #pragma unroll
        for (int aw = -LW; aw <= MW; ++aw) {
          if (!RUN) {
            load_columns<AT_ONCE, V, RUN, ALONE>(value, values, row, s.w + aw, OW, C, lanes, all);
            load_indices<AT_ONCE, V, X, RUN, ALONE, WHOLE>(index, indices, row, s.w, aw, OW, C, lanes, all);
          }
          #pragma unroll
          for (int r = 0; r < SD * SH; ++r) {
            const int kd = element_at(r / SH + PD - ad * SD, KD, DD), kh = element_at(r % SH + PH - ah * SH, KH, DH);
            const NAMED position = NAMED((NAMED(d0 + r / SH) * H + (h0 + r % SH)) * W + w0);
            #pragma unroll
            for (int o = 0; o < X * SW; ++o) {
              const int kw = element_at(o % SW + PW - aw * SW, KW, DW), n = RUN ? o / SW + aw + LW : 0;
              if (kd >= 0 && kh >= 0 && kw >= 0) {
                const NAMED wanted = FLAT ? NAMED(position + o) : NAMED((kd * KH + kh) * KW + kw);
                #pragma unroll
                for (int v = 0; v < V; ++v) {
                  const ACC given = SUM ? ACC(result[r][o][v] + ACC(value[n][v])) : ACC(value[n][v]);
                  result[r][o][v] = index[n][v] == wanted ? given : result[r][o][v];
                }
              }
            }
          }
        }
      }
    }
    #pragma unroll
    for (int r = 0; r < SD * SH; ++r) {
      if (WHOLE || (within(d0 + r / SH, D) && within(h0 + r % SH, H))) {
        T written[X * SW][V];
        #pragma unroll
        for (int o = 0; o < X * SW; ++o) {
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            written[o][v] = T(result[r][o][v]);
          }
        }
        const OFFSET row = (plane + (OFFSET(d0 + r / SH) * H + (h0 + r % SH)) * W) * C + s.c;
        store_columns<X * SW, V, RUN, WHOLE>(out, written, row, w0, W, C, lanes);
      }
    }
