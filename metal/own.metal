    // Which cell every place belongs to, where no window says: the last one that names it, else -1.
    // A maximum of integers comes out the same in whatever order the threads run.
    //   indices (B, OD, OH, OW, C), size = (D, H, W)  ->  owner (B, D, H, W, C), all -1 at first
    // One thread: V neighbouring channels of one cell. Grid: (OW * channel groups, OD * OH, B).
    const int D = size[0], H = size[1], W = size[2], C = indices_shape[4];
    const int OD = indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint groups = uint(C + V - 1) / V;
    const uint3 at = thread_position_in_grid;
    if (at.x >= OW * groups || at.y >= uint(OD) * OH || at.z >= uint(indices_shape[0])) {
      return;
    }
    const int ow = int(at.x / groups), c = int(at.x % groups) * V;
    const int64_t plane = int64_t(at.z) * D * H * W, cells = int64_t(at.z) * OD * OH * OW;
    const int cell = int(at.y) * OW + ow;
    for (int v = 0; v < V && c + v < C; ++v) {
      const INDEX index = INDEX(indices[(cells + cell) * C + c + v]);
      if (index >= 0 && index < INDEX(D) * H * W) {
        raise_to(owner + (plane + index) * C + c + v, cell);
      }
    }
