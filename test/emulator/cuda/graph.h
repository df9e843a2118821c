/** Work, and graphs of it. */
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace emulator {

/** Runs the work; returns a status, which is an error of the device. */
using Work = std::function<int()>;

struct Graph;

struct Node {
  int type;
  Work work;
  /** Indices of earlier nodes in the graph. */
  std::vector<size_t> after;
  uint64_t handle;
};

/** Nodes are in the order of recording, so each comes after its dependencies. */
struct Graph {
  std::vector<Node> nodes;
};

uint64_t addGraph(std::shared_ptr<Graph> graph);
void removeGraph(uint64_t handle);
/** Adds a node, and returns its index. */
size_t addNode(Graph& graph, int type, Work work, std::vector<size_t> after);

}  // namespace emulator
