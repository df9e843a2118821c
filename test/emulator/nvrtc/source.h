/** What the emulator has to know of a kernel's text: its entries, and whether their threads wait for each other. */
#pragma once

#include <string>
#include <vector>

namespace emulator {

struct Entry {
  std::string name;
  /** An expression: what __launch_bounds__ says, or the most that a block may have. */
  std::string maxThreads;
  /** What __cluster_dims__ says; "1" where there is none. */
  std::string cluster;
};

/** The text with spaces in place of its comments. */
std::string withoutComments(const std::string& text);

std::vector<Entry> findEntries(const std::string& text);

bool hasWaitingThreads(const std::string& text);

}  // namespace emulator
