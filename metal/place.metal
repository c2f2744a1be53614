    // Scatters pooled values to their positions, zero elsewhere. If several values have the same position, the last one is
    // written or, with SUM, their sum. Each output is written once.
    //   values, indices (B, OD, OH, OW, C), outside_window, winner_bits, size = (D, H, W)  ->  out (B, D, H, W, C)
    // One thread: V neighbouring channels of X neighbouring tiles of outputs. A tile is one stride long on each axis, and
    // tile t starts where window t would start without padding.
    // Grid: (tiles along W / X * channel groups, tiles along D * tiles along H, B).
    const int D = size[0], H = size[1], W = size[2], C = ONE ? V : indices_shape[4];
    const int OD = indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const int TD = tiles(D, SD, OD), TH = tiles(H, SH, OH), TW = tiles(W, SW, OW);
    const uint3 at = thread_position_in_grid;
    const WorkItem<AXIS> s = work_item_of<AXIS, V, X, ONE, PLANAR>(at, TD, TH, TW, C, indices_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = TAIL && C - s.c < V ? C - s.c : V;
    const AXIS d0 = s.d * SD, h0 = s.h * SH, w0 = s.w * SW;
    const OFFSET plane = OFFSET(at.z) * D * H * W;
    const OFFSET pooled = OFFSET(at.z) * OD * OH * OW;
    const int ND = covering_count<AXIS>(KD, SD, PD, DD), NH = covering_count<AXIS>(KH, SH, PH, DH);
    const int NW = covering_count<AXIS>(KW, SW, PW, DW);
    const AXIS LW = -covering_window<AXIS>(0, KW, SW, PW, DW); // columns from a tile back to the first window that covers it
    const int AT_ONCE = X > 1 ? X + NW - 1 : 1;                // columns of pooled values that are loaded together
    const bool ALONE = WHOLE && NW == 1;                       // along W, tile t is covered only by window t
    // Loops over small windows are unrolled; larger windows are looped over by row or by window, to limit the code size.
    const bool MANY = KD * KH * KW > 9;
    const int ROWS = MANY ? 1 : ND * NH, COLUMNS = MANY && NW > 8 ? 1 : NW;
    const OFFSET all = OFFSET(indices_shape[0]) * OD * OH * OW * C;

    if (OUTSIDE && outside_window[OFFSET(at.z) * ((C + V - 1) / V) + s.group]) {
      // An index in this channel group is outside its window. The thread writes zero to the positions of its tiles
      // that no index refers to, and each of its pooled values that is the last one at its position, which may be anywhere
      // in the plane. Both conditions are read from `winner_bits`.
      const INDEX elements = INDEX(D) * H * W, count = INDEX(OD) * OH * OW;
      const OFFSET words = OFFSET(words_of(elements) + words_of(count)), channel = OFFSET(at.z) * C + s.c;
      const int TILE = SD * SH * X * SW;
      for (int n = 0; n < lanes * TILE; ++n) {
        const int v = n / TILE, o = n % TILE;
        const AXIS d = d0 + o / (SH * X * SW), h = h0 + o / (X * SW) % SH, w = w0 + o % (X * SW);
        const INDEX position = (INDEX(d) * H + INDEX(h)) * W + INDEX(w);
        if (within(d, D) && within(h, H) && within(w, W) && !has_bit(winner_bits + (channel + v) * words, position)) {
          out[(plane + OFFSET(position)) * C + s.c + v] = T(0);
        }
      }
      for (int n = 0; n < lanes * X; ++n) {
        const int v = n / X, i = n % X;
        const INDEX number = (INDEX(s.d) * OH + INDEX(s.h)) * OW + INDEX(s.w + i);
        const auto lost = winner_bits + ((channel + v) * words + OFFSET(words_of(elements)));
        if (within(s.d, OD) && within(s.h, OH) && within(s.w + i, OW) && !has_bit(lost, number)) {
          const OFFSET from = (pooled + OFFSET(number)) * C + s.c + v;
          const INDEX index = INDEX(indices[from]);
          if (index >= 0 && index < elements) {
            out[(plane + OFFSET(index)) * C + s.c + v] = values[from];
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
    // Loop over the windows that cover the tiles, in row-major order.
    #pragma unroll(ROWS)
    for (int line = 0; line < ND * NH; ++line) {
      const AXIS ad = covering_window<AXIS>(line / NH, KD, SD, PD, DD), od = s.d + ad;
      const AXIS ah = covering_window<AXIS>(line % NH, KH, SH, PH, DH), oh = s.h + ah;
      if ((WHOLE && ND * NH == 1) || (within(od, OD) && within(oh, OH))) {
        const OFFSET row = (pooled + (OFFSET(od) * OH + OFFSET(oh)) * OW) * C + s.c;
        T value[AT_ONCE][V];
        NAMED index[AT_ONCE][V];
        if (X > 1) {
          load_columns<AT_ONCE, V, X, ALONE>(value, values, row, s.w - LW, OW, C, lanes, all);
          load_indices<AT_ONCE, V, X, ALONE, WHOLE>(index, indices, row, s.w, -LW, OW, C, lanes, all, true);
        }
        #pragma unroll(COLUMNS)
        for (int n = 0; n < NW; ++n) {
          const AXIS aw = covering_window<AXIS>(n, KW, SW, PW, DW);
          const bool there = ALONE || X > 1 || within(s.w + aw, OW);
          if (X == 1) {
            load_columns<AT_ONCE, V, X, ALONE>(value, values, row, s.w + aw, OW, C, lanes, all);
            load_columns<AT_ONCE, V, X, ALONE>(index, indices, row, s.w + aw, OW, C, lanes, all);
          }
          #pragma unroll
          for (int r = 0; r < SD * SH; ++r) {
            const int kd = element_at<AXIS>(r / SH + PD - ad * SD, KD, DD);
            const int kh = element_at<AXIS>(r % SH + PH - ah * SH, KH, DH);
            const NAMED position = FLAT ? NAMED((NAMED(d0 + r / SH) * H + NAMED(h0 + r % SH)) * W + NAMED(w0)) : NAMED(0);
            #pragma unroll
            for (int o = 0; o < X * SW; ++o) {
              const int kw = element_at<AXIS>(o % SW + PW - aw * SW, KW, DW), i = X > 1 ? o / SW + n : 0;
              if (kd >= 0 && kh >= 0 && kw >= 0) {
                const NAMED wanted = FLAT ? NAMED(position + o) : NAMED(there ? (kd * KH + kh) * KW + kw : -1);
                #pragma unroll
                for (int v = 0; v < V; ++v) {
                  const ACC given = SUM ? ACC(result[r][o][v] + ACC(value[i][v])) : ACC(value[i][v]);
                  const bool same = (index[i][v] == wanted) & (!FLAT || there);
                  result[r][o][v] = same ? given : result[r][o][v];
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
        const OFFSET row = (plane + (OFFSET(d0 + r / SH) * H + OFFSET(h0 + r % SH)) * W) * C + s.c;
        store_columns<X * SW, V, X, WHOLE>(out, written, row, w0, W, C, lanes);
      }
    }
