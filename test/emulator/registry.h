/** The objects behind the emulators' handles. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

namespace emulator {

/** Objects with handles. A handle is never a pointer, so that an invalid one is detected. */
template <class Thing>
class Registry {
  std::unordered_map<uint64_t, Thing> things_;
  uint64_t next_;

 public:
  /** Each kind has its own range of handles: a stream's handle is never an event's. */
  explicit Registry(uint64_t kind) : next_(kind << 32) {}

  uint64_t add(Thing thing) {
    next_ += 16;
    things_.emplace(next_, std::move(thing));
    return next_;
  }
  Thing* find(uint64_t handle) {
    auto found = things_.find(handle);
    return found == things_.end() ? nullptr : &found->second;
  }
  bool remove(uint64_t handle) { return things_.erase(handle) > 0; }
  size_t size() const { return things_.size(); }
  void clear() { things_.clear(); }
  auto begin() { return things_.begin(); }
  auto end() { return things_.end(); }
};

}  // namespace emulator
