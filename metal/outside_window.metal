    // Marks the channel groups of an image that have an index outside its own window. For these groups `scatter` and `gather`
    // cannot find the pooled values of a position by reading the windows around it, and use the bits of `outside_winners`.
    //   indices (B, OD, OH, OW, C), size = (D, H, W)  ->  outside_window (B, channel groups), initialised to 0
    // One thread: V neighbouring channels of one pooled value. Grid: (OW * C / V, OD * OH, B).
    const int D = PLANAR ? 1 : size[0], H = size[1], W = size[2], C = ONE ? V : indices_shape[4];
    const int OD = PLANAR ? 1 : indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint3 at = thread_position_in_grid;
    const WorkItem<N> s = work_item_of<N, V>(at, OD, OH, OW, C, indices_shape[0]);
    if (s.beyond) {
      return;
    }
    const Elements<N> d = elements_of<N>(s.d * SD - PD, KD, DD, PD, D), h = elements_of<N>(s.h * SH - PH, KH, DH, PH, H);
    const Elements<N> w = elements_of<N>(s.w * SW - PW, KW, DW, PW, W);
    const bool any = DD * DH * DW == 1 || (d.least <= d.most && h.least <= h.most && w.least <= w.most);
    const N first = position_of(w, w.least), length = any ? position_of(w, w.most) - first : N(-1);
    const N from = ((N(at.z) * OD * OH + at.y) * OW + s.w) * C + s.c;
    const auto given = indices + from;
    bool outside = false;
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      const bool named = N(given[v]) >= 0 && N(given[v]) < N(D) * H * W; // other indices are ignored everywhere
      const N index = named ? N(given[v]) : N(0);
      bool in_window = false;
      #pragma unroll
      for (int row = 0; row < KD * KH; ++row) {
        const N line = position_of(d, nearest(d, row / KH)) * H + position_of(h, nearest(h, row % KH));
        const N ahead = index - (line * W + first);
        in_window |= (ahead >= 0) & (ahead <= length) & (DW == 1 || ahead % DW == 0);
      }
      outside |= named & !in_window;
    }
    if (outside) {
      set_bits(outside_window + (N(at.z) * (C / V) + s.c / V), 1u);
    }
