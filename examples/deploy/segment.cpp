// Runs an exported network on an array: ./segment network.mlxfn input.npy classes.npy
// The class of every position is that of its highest score; scores are on the last axis.
#include <exception>
#include <iostream>

#include "mlx/mlx.h"

namespace mx = mlx::core;

int main(int count, char* words[]) try {
  if (count != 4) {
    std::cerr << "usage: " << words[0] << " network.mlxfn input.npy classes.npy\n";
    return 2;
  }
  auto network = mx::import_function(words[1]);
  auto input = mx::load(words[2]);
  auto scores = network({input})[0];
  auto classes = mx::argmax(scores, -1);
  mx::save(words[3], classes);
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
