/** Graphs: their nodes, their executables, and the launch that runs the recorded work in order. */
#include "graph.h"

#include "control.h"
#include "snapshot.h"
#include "stream.h"

namespace emulator {

namespace {

struct Executable {
  std::shared_ptr<Graph> graph;
  bool allocates = false;
  long launches = 0;
};

Registry<std::shared_ptr<Graph>> graphs(0x60);
Registry<int> nodeTypes(0x70);
Registry<Executable> executables(0x80);

int runNodes(const Graph& graph) {
  const size_t count = graph.nodes.size();
  std::vector<Snapshots> snapshots(count);
  // The last node for which a snapshot is kept: those of a whole graph may need too much memory.
  std::vector<size_t> lastDependent(count, 0);
  for (size_t index = 0; index < count; ++index) {
    for (const size_t before : graph.nodes[index].after) lastDependent[before] = index;
  }
  for (size_t index = 0; index < count; ++index) {
    const Node& node = graph.nodes[index];
    Snapshots preceding;
    for (const size_t before : node.after) {
      preceding.insert(preceding.end(), snapshots[before].begin(), snapshots[before].end());
      if (lastDependent[before] == index) snapshots[before].clear();
    }
    if (!node.work) continue;
    if (const int status = runAfter(preceding, node.type, node.work)) return status;
    if (lastDependent[index] > index) snapshots[index] = std::move(preceding);
  }
  return success;
}

}  // namespace

uint64_t addGraph(std::shared_ptr<Graph> graph) { return graphs.add(std::move(graph)); }

void removeGraph(uint64_t handle) {
  std::shared_ptr<Graph>* graph = graphs.find(handle);
  if (graph == nullptr) return;
  for (const Node& node : (*graph)->nodes) nodeTypes.remove(node.handle);
  graphs.remove(handle);
}

size_t addNode(Graph& graph, int type, Work work, std::vector<size_t> after) {
  graph.nodes.push_back({type, std::move(work), std::move(after), nodeTypes.add(type)});
  return graph.nodes.size() - 1;
}

size_t graphCount() { return graphs.size(); }
size_t executableCount() { return executables.size(); }

}  // namespace emulator

using namespace emulator;

EMULATOR_EXPORT int cuGraphGetNodes(uint64_t graph, uint64_t* nodes, size_t* count) {
  ENTER(context);
  std::shared_ptr<Graph>* found = graphs.find(graph);
  if (found == nullptr || count == nullptr) return invalidValue;
  const std::vector<Node>& all = (*found)->nodes;
  if (nodes != nullptr) {
    for (size_t index = 0; index < *count; ++index) nodes[index] = index < all.size() ? all[index].handle : 0;
    if (*count > all.size()) *count = all.size();
  } else {
    *count = all.size();
  }
  return success;
}

EMULATOR_EXPORT int cuGraphNodeGetType(uint64_t node, int* type) {
  ENTER(context);
  const int* found = nodeTypes.find(node);
  if (found == nullptr || type == nullptr) return invalidValue;
  *type = *found;
  return success;
}

EMULATOR_EXPORT int cuGraphInstantiateWithFlags(uint64_t* executable, uint64_t graph, uint64_t flags) {
  ENTER(context);
  std::shared_ptr<Graph>* found = graphs.find(graph);
  if (found == nullptr || executable == nullptr || flags > 15) return invalidValue;
  note("flags of the latest executable", static_cast<long long>(flags));
  // A copy: later changes of the graph do not affect the executable.
  Executable instance{std::make_shared<Graph>(**found)};
  for (const Node& node : instance.graph->nodes) instance.allocates |= node.type == memAllocNode;
  *executable = executables.add(std::move(instance));
  return success;
}

EMULATOR_EXPORT int cuGraphUpload(uint64_t executable, uint64_t stream) {
  ENTER(context);
  if (executables.find(executable) == nullptr) return invalidValue;
  return hasStream(stream) ? success : invalidHandle;
}

EMULATOR_EXPORT int cuGraphLaunch(uint64_t executable, uint64_t stream) {
  ENTER(context);
  Executable* found = executables.find(executable);
  if (found == nullptr) return invalidValue;
  // Memory that the graph allocates and doesn't free is still held when it is launched again.
  if (found->allocates && found->launches > 0) return invalidValue;
  const std::shared_ptr<Graph> graph = found->graph;
  const int status = submit(stream, graphNode, [graph] { return runNodes(*graph); });
  if (status == success) found->launches += 1;
  return status;
}

EMULATOR_EXPORT int cuGraphExecDestroy(uint64_t executable) {
  ENTER(context);
  return executables.remove(executable) ? success : invalidValue;
}

EMULATOR_EXPORT int cuGraphDestroy(uint64_t graph) {
  ENTER(context);
  if (graphs.find(graph) == nullptr) return invalidValue;
  removeGraph(graph);
  return success;
}
