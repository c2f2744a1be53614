    // Who wins in the channels that `outside_window` marks, where an index may name any position.
    //   indices (B, OD, OH, OW, C), outside_window (B, channel groups), size = (D, H, W, channels of a group, lanes)
    //   ->  winner_bits (B, C, words), all 0 at first: a bit for each position that is named, then one for each pooled value
    //   that loses its position to a later one
    // One thread: one channel, all of its indices from the last to the first, and the positions of its share of the words of
    // bits: one of `lanes`. No other thread writes these words, so it waits for no other; it reads a word only where the word changes.
    // Grid: (lanes * C, 1, B).
    const int D = size[0], H = size[1], W = size[2], C = indices_shape[4], group = size[3], lanes = size[4];
    const int OD = indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint3 at = thread_position_in_grid;
    if (at.x >= uint(lanes) * uint(C) || at.y > 0 || at.z >= uint(indices_shape[0])) {
      return;
    }
    const int c = int(at.x % uint(C));
    const uint lane = at.x / uint(C);
    if (outside_window[OFFSET(at.z) * ((C + group - 1) / group) + c / group] == 0) {
      return;
    }
    const INDEX elements = INDEX(D) * H * W, count = INDEX(OD) * OH * OW;
    const OFFSET from = OFFSET(at.z) * OFFSET(count) * C + c;
    const auto named = winner_bits + (OFFSET(at.z) * C + c) * OFFSET(words_of(elements) + words_of(count));
    const auto lost = named + words_of(elements);
    INDEX current = -1; // the word whose bits are known
    uint32_t bits = 0;
    for (INDEX left = count; left > 0; left -= 16) {
      INDEX index[16]; // loaded together: the loads need not wait for one another
      #pragma unroll
      for (int n = 0; n < 16; ++n) {
        index[n] = INDEX(indices[from + OFFSET(n < left ? left - 1 - n : INDEX(0)) * C]);
      }
      #pragma unroll
      for (int n = 0; n < 16; ++n) {
        const INDEX word = index[n] / 32;
        // Spread, so that regular indices are divided evenly among the threads.
        const uint spread = uint(word) * 0x9e3779b1u;
        if (n < left && index[n] >= 0 && index[n] < elements && (spread >> 16) % uint(lanes) == lane) {
          const uint32_t bit = uint32_t(1) << uint(index[n] % 32);
          if (word != current || (bits & bit) == 0) {
            bits = set_bits(named + word, bit);
            current = word;
          }
          if (bits & bit) {
            set_bits(lost + (left - 1 - n) / 32, uint32_t(1) << uint((left - 1 - n) % 32));
          }
          bits |= bit;
        }
      }
    }
