    // Gathers the elements of the full array at the indices; 0 for an index outside the plane.
    // Optionally also 0 for a pooled value that a later one overwrites, which is found by
    // comparison with the later windows (COMPARE) or in the output of `last_writer` (HAS_WINNER).
    //   full, winner (B, D, H, W, C), indices (B, OD, OH, OW, C), outside_window, winner_bits
    //   ->  out (B, OD, OH, OW, C)
    // One thread: V neighbouring channels of one pooled value. Grid: (OW * C / V, OD * OH, B).
    const int D = PLANAR ? 1 : full_shape[1], H = full_shape[2], W = full_shape[3],
              C = ONE ? V : full_shape[4];
    const int OD = PLANAR ? 1 : indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const WorkItem<N> at =
        work_item_of<N, V>(thread_position_in_grid, full_shape[0], OD, OH, OW, C);
    if (!at.exists) {
      return;
    }
    const N plane = at.b * D * H * W, elements = N(D) * H * W, count = N(OD) * OH * OW;
    const N number = (at.d * OH + at.h) * OW + at.w, to = (at.b * count + number) * C + at.c;

    // The indices: flat, or the coordinates of an element in the window.
    N index[V];
    int kd[V], kh[V], kw[V];
    bool valid[V]; // the index is inside the plane, and no later value overwrites this one
    const auto given = indices + to;
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      index[v] = N(given[v]);
      valid[v] = index[v] >= 0 && index[v] < (FLAT ? elements : N(KD * KH * KW));
      const int n = FLAT || !valid[v] ? 0 : int(index[v]), row = row_of<KD * KH, KW>(n);
      kd[v] = row_of<KD, KH>(row);
      kh[v] = row - kd[v] * KH;
      kw[v] = n - row * KW;
    }

    // Comparison.
    const bool outside = COMPARE && FLAT && outside_window[at.b * (C / V) + at.c / V];
    if (outside) { // an index of this channel group is outside its window
      #pragma unroll
      for (int v = 0; v < V; ++v) {
        const N words =
            (at.b * C + at.c + v) * (words_of(elements) + words_of(count)) + words_of(elements);
        valid[v] &= !has_bit(winner_bits + words, number);
      }
    } else if (COMPARE) {
      // The later windows that overlap this one. A window that starts (fd, fh, fw) elements later
      // has the same position if the element is in both; its flat index is the same, and its offset
      // is smaller.
      // RD, RH and RW are the numbers of windows on each side.
      const int RD = COMPARE ? (KD - 1) * DD / SD : 0, RH = COMPARE ? (KH - 1) * DH / SH : 0;
      const int RW = COMPARE ? (KW - 1) * DW / SW : 0, ROWS = 2 * RH + 1, COLUMNS = 2 * RW + 1;
      #pragma unroll
      for (int n = RH * COLUMNS + RW + 1; n < (RD + 1) * ROWS * COLUMNS; ++n) {
        const int ad = n / (ROWS * COLUMNS), ah = n / COLUMNS % ROWS - RH, aw = n % COLUMNS - RW;
        const int fd = ad * SD / DD, fh = ah * SH / DH, fw = aw * SW / DW;
        if (fd * DD == ad * SD && fh * DH == ah * SH && fw * DW == aw * SW) {
          const bool exists = inside(at.d + ad, at.h + ah, at.w + aw, OD, OH, OW);
          const auto later = given + (exists ? ((N(ad) * OH + ah) * OW + aw) * C : N(0));
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            const bool in_both = FLAT || inside(kd[v] - fd, kh[v] - fh, kw[v] - fw, KD, KH, KW);
            valid[v] &= !(exists & in_both &
                          (N(later[v]) == index[v] - (FLAT ? 0 : (fd * KH + fh) * KW + fw)));
          }
        }
      }
    }

    // Loads and store.
    T result[V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      const N d = at.d * SD - PD + N(kd[v]) * DD, h = at.h * SH - PH + N(kh[v]) * DH,
              w = at.w * SW - PW + N(kw[v]) * DW;
      valid[v] &= FLAT || inside(d, h, w, D, H, W);
      const N position = !valid[v] ? N(0) : FLAT ? index[v] : (d * H + h) * W + w;
      const N from = (plane + position) * C + at.c + v;
      const T value = full[from];
      result[v] = valid[v] && (!HAS_WINNER || N(winner[from]) == number) ? value : T(0);
    }
    const auto target = out + to;
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      target[v] = result[v];
    }
