/**
 * What the emulator must know of a kernel's source: its entries, and whether their threads wait for each
 * other.
 */
#pragma once

#include <string>
#include <vector>

namespace emulator {

struct Entry {
  std::string name;
  /** An expression: the value of __launch_bounds__, or the maximum of a block. */
  std::string maxThreads;
  /** The value of __cluster_dims__; "1" by default. */
  std::string cluster;
};

/** The text with its comments replaced by spaces. */
std::string withoutComments(const std::string& text);

std::vector<Entry> findEntries(const std::string& text);

bool hasWaitingThreads(const std::string& text);

}  // namespace emulator
