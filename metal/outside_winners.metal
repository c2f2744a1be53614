    // Finds the last pooled value of each position in the channel groups marked by
    // `outside_window`, where an index may refer to any position.
    //   indices (B, OD, OH, OW, C), outside_window (B, channel groups),
    //   size = (D, H, W, group, threads): `group` channels per group, `threads` threads per
    //   channel, a power of two
    //   ->  winner_bits (B, C, words), initialised to 0: one bit per position, set if an index
    //   refers to it, then one bit per pooled value, set if a later value has the same index
    // One thread: all indices of one channel, from the last to the first. The threads of a channel
    // update different words of position bits and need no synchronisation. A thread keeps the
    // current word in a register and accesses memory only for another word or to set a bit.
    // Grid: (threads * C, 1, B).
    const int D = size[0], H = size[1], W = size[2], C = indices_shape[4], group = size[3],
              threads = size[4];
    const int OD = indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint3 at = thread_position_in_grid;
    if (at.x >= uint(threads) * uint(C) || at.y > 0 || at.z >= uint(indices_shape[0])) {
      return;
    }
    const int c = int(at.x % uint(C));
    const uint thread_number = at.x / uint(C);
    if (outside_window[N(at.z) * (C / group) + c / group] == 0) {
      return;
    }
    const N elements = N(D) * H * W, count = N(OD) * OH * OW;
    const N from = N(at.z) * count * C + c;
    const auto position_bits =
        winner_bits + (N(at.z) * C + c) * (words_of(elements) + words_of(count));
    const auto value_bits = position_bits + words_of(elements);
    N current = -1; // the word that `bits` holds
    uint32_t bits = 0;
    for (N left = count; left > 0; left -= 16) {
      N index[16]; // independent loads, which can overlap
      #pragma unroll
      for (int n = 0; n < 16; ++n) {
        index[n] = N(indices[from + (n < left ? left - 1 - n : N(0)) * C]);
      }
      #pragma unroll
      for (int n = 0; n < 16; ++n) {
        const N word = index[n] >> 5;
        // A hash, so that regular indices are distributed evenly over the threads.
        const uint owner = (uint(word) * 0x9e3779b1u >> 16) & (uint(threads) - 1);
        if (n < left && index[n] >= 0 && index[n] < elements && owner == thread_number) {
          const uint32_t bit = uint32_t(1) << uint(index[n] & 31);
          if (word != current || (bits & bit) == 0) {
            bits = set_bits(position_bits + word, bit);
            current = word;
          }
          if (bits & bit) {
            set_bits(value_bits + (left - 1 - n) / 32, uint32_t(1) << uint((left - 1 - n) % 32));
          }
          bits |= bit;
        }
      }
    }
