/** Work, and graphs of it. */
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace emulator {

/** Does its work when called; answers with a status, which is an error of the device. */
using Work = std::function<int()>;

struct Graph;

struct Node {
  int type;
  Work work;
  /** Places of earlier nodes in the graph. */
  std::vector<size_t> after;
  uint64_t handle;
};

/** Nodes stand in the order in which they were recorded, so each comes behind those that it waits for. */
struct Graph {
  std::vector<Node> nodes;
};

uint64_t addGraph(std::shared_ptr<Graph> graph);
void removeGraph(uint64_t handle);
/** Adds a node, and answers with its place. */
size_t addNode(Graph& graph, int type, Work work, std::vector<size_t> after);

}  // namespace emulator
