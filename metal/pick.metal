    // Gathers the elements of the full array at the indices; 0 for an index outside the plane. Optionally also 0 for a pooled
    // value that a later one overwrites, found by comparison with the indices of overlapping windows (LATER), in `winner_bits`
    // for the channel groups marked in `outside_window` (OUTSIDE), or in the output of `last_writer`, `winner` (HAS_WINNER).
    //   full (B, D, H, W, C), indices (B, OD, OH, OW, C), outside_window, winner_bits, winner (B, D, H, W, C)
    //   ->  out (B, OD, OH, OW, C)
    // One thread: V neighbouring channels of X neighbouring pooled values. Grid: (OW / X * channel groups, OD * OH, B).
    const int D = full_shape[1], H = full_shape[2], W = full_shape[3], C = ONE ? V : full_shape[4];
    const int OD = indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint3 at = thread_position_in_grid;
    const WorkItem<AXIS> s = work_item_of<AXIS, V, X, ONE, PLANAR>(at, OD, OH, OW, C, full_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = TAIL && C - s.c < V ? C - s.c : V;
    const AXIS d0 = s.d * SD - PD, h0 = s.h * SH - PH, w0 = s.w * SW - PW;
    const OFFSET start = (OFFSET(d0) * H + OFFSET(h0)) * W + OFFSET(w0);
    const OFFSET row = (OFFSET(at.z) * OD * OH + at.y) * OW * C + s.c;

    const OFFSET all = OFFSET(full_shape[0]) * OD * OH * OW * C;
    NAMED index[X][V], kept[X][V]; // kept: the index, or -1 if a later value overwrites this one
    load_columns<X, V, X, EVEN>(index, indices, row, s.w, OW, C, lanes, all);
    #pragma unroll
    for (int n = 0; n < X * V; ++n) {
      kept[n / V][n % V] = index[n / V][n % V];
    }
    if (OUTSIDE && outside_window[OFFSET(at.z) * ((C + V - 1) / V) + s.group]) {
      const NAMED elements = NAMED(D) * H * W, count = NAMED(OD) * OH * OW;
      #pragma unroll
      for (int i = 0; i < X; ++i) {
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          if (v < lanes && (EVEN || s.w + i < OW)) {
            const OFFSET words = (OFFSET(at.z) * C + s.c + v) * OFFSET(words_of(elements) + words_of(count));
            const auto lost = winner_bits + (words + OFFSET(words_of(elements)));
            kept[i][v] = has_bit(lost, NAMED(at.y) * OW + NAMED(s.w + i)) ? NAMED(-1) : index[i][v];
          }
        }
      }
    } else if (LATER) {
      // The number of windows that overlap a window on each side of it.
      const int RD = LATER ? (KD - 1) * DD / SD : 0, RH = LATER ? (KH - 1) * DH / SH : 0;
      const int RW = LATER ? (KW - 1) * DW / SW : 0;
      const int AT_ONCE = X > 1 ? X + 2 * RW : 1, ROWS = 2 * RH + 1;
      // A flat index is the same in all windows. In a window that starts (fd, fh, fw) elements later, the index of the same
      // position is smaller by (fd * KH + fh) * KW + fw, if the element is in both windows on each axis. Otherwise NONE is
      // added, which gives a number that is no index.
      typedef decltype(NAMED(0) + 0) WIDE;
      const WIDE NONE = 1 << 20;
      NAMED later[AT_ONCE][V];
      WIDE change[2 * RW + 1][X][V]; // -fw, or NONE, also if the window does not exist
      #pragma unroll
      for (int e = 0; e < 2 * RW + 1; ++e) {
        const int fw = (e - RW) * SW / DW;
        #pragma unroll
        for (int i = 0; i < X; ++i) {
          const int column = i + e - RW;
          const bool exists = (EVEN && column >= 0 && column < X) || within(s.w + column, OW);
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            const bool common = FLAT || both_have<KW>(weigh<KD, KH, KW>(int(index[i][v]), 0, 0, 1), fw);
            change[e][i][v] = FLAT ? WIDE(0) : exists & common ? WIDE(-fw) : NONE;
          }
        }
      }
      #pragma unroll
      for (int near = RH; near < (RD + 1) * ROWS; ++near) {
        const int ed = near / ROWS, eh = near % ROWS - RH;
        const int fd = ed * SD / DD, fh = eh * SH / DH;
        const bool apart = ed * SD % DD != 0 || eh * SH % DH != 0;
        if (!apart && (ed == 0 || s.d + ed < OD) && (eh == 0 || within(s.h + eh, OH))) {
          const OFFSET there = row + OFFSET(ed * OH + eh) * OW * C;
          WIDE wanted[X][V]; // the index of the same position in a window of this row with fw = 0
          #pragma unroll
          for (int i = 0; i < X; ++i) {
            #pragma unroll
            for (int v = 0; v < V; ++v) {
              const int n = int(index[i][v]), kd = weigh<KD, KH, KW>(n, 1, 0, 0), kh = weigh<KD, KH, KW>(n, 0, 1, 0);
              const bool common = FLAT || (both_have<KD>(kd, fd) & both_have<KH>(kh, fh));
              wanted[i][v] = common ? index[i][v] - (FLAT ? 0 : (fd * KH + fh) * KW) : NONE;
            }
          }
          // Without `check`, the nearest column replaces one outside the row. In a later row, its flat index is that of a later
          // window as well.
          const bool check = FLAT && (X > 1 || near == RH);
          if (X > 1) {
            load_indices<AT_ONCE, V, X, false, EVEN>(later, indices, there, s.w, AXIS(-RW), OW, C, lanes, all, check);
          }
          #pragma unroll
          for (int ew = -RW; ew <= RW; ++ew) {
            if (ew * SW % DW == 0 && (ed > 0 || eh > 0 || ew > 0)) {
              if (X == 1) {
                load_indices<AT_ONCE, V, X, false, EVEN>(later, indices, there, s.w, AXIS(ew), OW, C, lanes, all, check);
              }
              #pragma unroll
              for (int i = 0; i < X; ++i) {
                #pragma unroll
                for (int v = 0; v < V; ++v) {
                  const WIDE other = later[X > 1 ? i + ew + RW : 0][v];
                  kept[i][v] = other == wanted[i][v] + change[ew + RW][i][v] ? NAMED(-1) : kept[i][v];
                }
              }
            }
          }
        }
      }
    }
    const OFFSET plane = OFFSET(at.z) * D * H * W;
    const uint number = at.y * uint(OW) + uint(s.w);
    T picked[X][V];
    #pragma unroll
    for (int i = 0; i < X; ++i) {
      #pragma unroll
      for (int v = 0; v < V; ++v) {
        const NAMED n = kept[i][v];
        bool named;
        OFFSET position;
        if (FLAT) {
          named = n >= 0 && n < NAMED(D) * H * W;
          position = OFFSET(n);
        } else {
          const AXIS d = d0 + AXIS(DD) * weigh<KD, KH, KW>(int(n), 1, 0, 0);
          const AXIS h = h0 + AXIS(DH) * weigh<KD, KH, KW>(int(n), 0, 1, 0);
          const AXIS w = w0 + i * SW + AXIS(DW) * weigh<KD, KH, KW>(int(n), 0, 0, 1);
          named = (int(n) < KD * KH * KW) & (INSIDE || (within(d, D) & within(h, H) & within(w, W)));
          position = start + i * SW + weigh<KD, KH, KW>(int(n), OFFSET(DD) * H * W, OFFSET(DH) * W, OFFSET(DW));
        }
        const OFFSET from = (plane + (named ? position : OFFSET(0))) * C + s.c + (v < lanes ? v : 0);
        const bool found = named & (!HAS_WINNER || uint(winner[from]) == number + uint(i));
        const T value = full[from];
        picked[i][v] = found ? value : T(0);
      }
    }
    store_columns<X, V, X, EVEN>(out, picked, row, s.w, OW, C, lanes);
