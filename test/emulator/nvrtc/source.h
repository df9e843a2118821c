/**
 * What the emulator must know of a kernel's source: its entries, whether their threads wait for each other,
 * and casts that g++ accepts and the emulator does not.
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

/** The line of the first C-style cast to a pointer, in a text without comments; 0 if there is none. */
int findPointerCast(const std::string& text);

bool hasWaitingThreads(const std::string& text);

/** The text with its entries as C++ functions, which may have the same name in several namespaces. */
std::string withoutLinkage(const std::string& text);

}  // namespace emulator
