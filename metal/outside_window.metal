    // Marks the channel groups of an image that have an index outside its own window. For these
    // groups `scatter` and `gather` cannot find the pooled values of a position by reading the
    // windows around it, and use the bits of `outside_winners`.
    //   indices (B, OD, OH, OW, C), size = (D, H, W)
    //   ->  outside_window (B, C / V), initialised to 0
    // One thread: V neighbouring channels of one pooled value. Grid: (OW * C / V, OD * OH, B).
    const int D = PLANAR ? 1 : size[0], H = size[1], W = size[2], C = ONE ? V : indices_shape[4];
    const int OD = PLANAR ? 1 : indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const WorkItem<N> at =
        work_item_of<N, V>(thread_position_in_grid, indices_shape[0], OD, OH, OW, C);
    if (!at.exists) {
      return;
    }

    // The elements of the window: in each row, those from `left` to `left + length`. A window may
    // start after the plane.
    const Elements<N> d = elements_of<N>(at.d * SD - PD, KD, DD, PD, D),
                      h = elements_of<N>(at.h * SH - PH, KH, DH, PH, H);
    const Elements<N> w = elements_of<N>(at.w * SW - PW, KW, DW, PW, W);
    const bool after = d.start >= D || h.start >= H || w.start >= W;
    const bool empty =
        after || (DD > 1 && is_empty(d)) || (DH > 1 && is_empty(h)) || (DW > 1 && is_empty(w));
    const N left = position_of(w, w.first), length = empty ? N(-1) : position_of(w, w.last) - left;
    // 0 if empty, because the products of far elements could overflow.
    const int height = empty ? 0 : H, width = empty ? 0 : W;

    // Comparison. Indices outside the plane are ignored by every kernel.
    const auto given = indices + ((((at.b * OD + at.d) * OH + at.h) * OW + at.w) * C + at.c);
    bool outside = false;
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      const bool valid = N(given[v]) >= 0 && N(given[v]) < N(D) * H * W;
      const N index = valid ? N(given[v]) : N(0);
      bool in_window = false;
      #pragma unroll
      for (int row = 0; row < KD * KH; ++row) {
        const N line = position_of(d, nearest(d, row / KH)) * height +
                       position_of(h, nearest(h, row % KH));
        const N ahead = index - (line * width + left);
        in_window |= (ahead >= 0) & (ahead <= length) & (DW == 1 || ahead % DW == 0);
      }
      outside |= valid & !in_window;
    }
    if (outside) {
      set_bits(outside_window + (at.b * (C / V) + at.c / V), 1u);
    }
