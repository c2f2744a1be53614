    // Gathers the elements of the full array at the indices; 0 for an index outside the plane. Optionally also 0 for a pooled
    // value that a later one overwrites, found by comparison with the indices of overlapping windows (COMPARE), in `winner_bits`
    // for the channel groups marked in `outside_window` (COMPARE, FLAT), or in the output of `last_writer`, `winner` (HAS_WINNER).
    //   full (B, D, H, W, C), indices (B, OD, OH, OW, C), outside_window, winner_bits, winner (B, D, H, W, C)
    //   ->  out (B, OD, OH, OW, C)
    // One thread: V neighbouring channels of one pooled value. Grid: (OW * C / V, OD * OH, B).
    const int D = PLANAR ? 1 : full_shape[1], H = full_shape[2], W = full_shape[3], C = ONE ? V : full_shape[4];
    const int OD = PLANAR ? 1 : indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint3 at = thread_position_in_grid;
    const WorkItem<N> s = work_item_of<N, V>(at, OD, OH, OW, C, full_shape[0]);
    if (s.beyond) {
      return;
    }
    const N plane = N(at.z) * D * H * W, elements = N(D) * H * W, number = N(at.y) * OW + s.w;
    const N to = (N(at.z) * OD * OH * OW + number) * C + s.c;
    const bool outside = COMPARE && FLAT && outside_window[N(at.z) * (C / V) + s.c / V];
    // The number of windows that overlap a window on each side of it.
    const int RD = COMPARE ? (KD - 1) * DD / SD : 0, RH = COMPARE ? (KH - 1) * DH / SH : 0, RW = COMPARE ? (KW - 1) * DW / SW : 0;
    const int ROWS = 2 * RH + 1, COLUMNS = 2 * RW + 1, COUNT = (RD + 1) * ROWS * COLUMNS;

    N index[V];
    int kd[V], kh[V], kw[V]; // the window element
    bool lost[V];            // whether a later value overwrites this one
    const auto own = indices + to;
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      index[v] = N(own[v]);
      const int n = FLAT ? 0 : int(index[v]), row = row_of<KD * KH, KW>(n);
      kd[v] = row_of<KD, KH>(row);
      kh[v] = row - kd[v] * KH;
      kw[v] = n - row * KW;
      lost[v] = false;
      if (outside) {
        const N words = (N(at.z) * C + s.c + v) * (words_of(elements) + words_of(N(OD) * OH * OW)) + words_of(elements);
        lost[v] = has_bit(winner_bits + words, number);
      }
    }
    if (COMPARE && !outside) {
      // The later windows that overlap this one. A window that starts (fd, fh, fw) elements later has the same position if the
      // element is in both; its flat index is the same, and its offset is smaller.
      #pragma unroll
      for (int n = (RH * COLUMNS) + RW + 1; n < COUNT; ++n) {
        const int ed = n / (ROWS * COLUMNS), eh = n / COLUMNS % ROWS - RH, ew = n % COLUMNS - RW;
        const int fd = ed * SD / DD, fh = eh * SH / DH, fw = ew * SW / DW;
        const bool apart = ed * SD % DD != 0 || eh * SH % DH != 0 || ew * SW % DW != 0;
        if (!apart) {
          const bool exists = within(s.d + ed, OD) & within(s.h + eh, OH) & within(s.w + ew, OW);
          const auto other = own + (exists ? ((N(ed) * OH + eh) * OW + ew) * C : N(0));
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            const bool common = FLAT || (within(kd[v] - fd, KD) & within(kh[v] - fh, KH) & within(kw[v] - fw, KW));
            lost[v] |= exists & common & (N(other[v]) == index[v] - (FLAT ? 0 : (fd * KH + fh) * KW + fw));
          }
        }
      }
    }
    T picked[V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      N position = index[v];
      bool named = position >= 0 && position < elements;
      if (!FLAT) {
        const N d = s.d * SD - PD + N(kd[v]) * DD, h = s.h * SH - PH + N(kh[v]) * DH, w = s.w * SW - PW + N(kw[v]) * DW;
        position = (d * H + h) * W + w;
        named = kw[v] < KW && within(d, D) && within(h, H) && within(w, W);
      }
      const N from = (plane + (named ? position : N(0))) * C + s.c + v;
      const bool found = named & !lost[v] & (!HAS_WINNER || N(winner[from]) == number);
      const T value = full[from];
      picked[v] = found ? value : T(0);
    }
    const auto target = out + to;
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      target[v] = picked[v];
    }
