"""Reads a memory snapshot of torch.cuda.memory._dump_snapshot and strictly checks its format.  usage: check_memory_snapshot.py FILE…  Prints a summary of each snapshot as a line of JSON; a failed assertion names the error. The shapes are those of the typed dictionaries in the documentation of torch.cuda.memory._snapshot, with the further fields that the viewer reads. """

import json
import pickle
import sys


class Strict(pickle.Unpickler):
    def find_class(self, module, name):
        raise AssertionError(f"the pickle asks for {module}.{name}")


def exactly(value, kind, where):
    assert type(value) is kind, f"{where} is {type(value).__name__}, not {kind.__name__}"
    return value


def fields(value, shape, where):
    exactly(value, dict, where)
    assert set(value) == set(shape), f"{where} has {sorted(value)}, not {sorted(shape)}"
    for name, kind in shape.items():
        exactly(value[name], kind, f"{where}.{name}")


def count(value, where):
    assert value >= 0, f"{where} is {value}"


FRAME = {"filename": str, "line": int, "name": str}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
SEGMENT = {
    "device": int, "address": int, "total_size": int, "allocated_size": int, "active_size": int, "requested_size": int,
    "stream": int, "segment_type": str, "segment_pool_id": tuple, "is_expandable": bool, "frames": list, "blocks": list,
}
ENTRY = {
    "action": str, "addr": int, "size": int, "stream": int, "time_us": int, "frames": list, "pool_id": tuple,
}
STATES = {"active_allocated", "active_awaiting_free", "active_pending_free", "inactive"}


def check_frames(frames, where):
    for index, frame in enumerate(frames):
        fields(frame, FRAME, f"{where}[{index}]")


def check_segment(segment, where):
    fields(segment, SEGMENT, where)
    assert segment["segment_type"] == ("large" if segment["total_size"] > 2**20 else "small"), where
    assert len(segment["segment_pool_id"]) == 2, where
    check_frames(segment["frames"], f"{where}.frames")
    at, active = segment["address"], 0
    for index, block in enumerate(segment["blocks"]):
        name = f"{where}.blocks[{index}]"
        fields(block, BLOCK, name)
        assert block["state"] in STATES, name
        # The viewer sums sizes instead of reading addresses: blocks must fill their segment.
        assert block["address"] == at and block["size"] > 0, name
        assert 0 <= block["requested_size"] <= block["size"], name
        check_frames(block["frames"], f"{name}.frames")
        at += block["size"]
        if block["state"] == "active_allocated":
            active += block["requested_size"]
            assert block["frames"], f"{name} does not say what it is"
    assert at == segment["address"] + segment["total_size"], f"{where}: blocks do not fill it"
    assert segment["allocated_size"] == segment["active_size"] == segment["requested_size"] == active, where


def check_trace(trace, segments):
    """Replays the trace; returns the final live set, its peak, and the numbers of allocations and frees."""
    mapped, live, asked = {}, {}, None
    total = most = allocs = frees = 0
    step_most = 0
    last_us = 0
    for index, entry in enumerate(trace):
        where = f"device_traces[0][{index}]"
        fields(entry, ENTRY, where)
        check_frames(entry["frames"], f"{where}.frames")
        assert entry["frames"], f"{where} does not say what it is"
        assert entry["size"] > 0 and entry["stream"] == 0, where
        assert entry["time_us"] >= last_us, f"{where}: time goes back"
        last_us = entry["time_us"]
        action, addr, size = entry["action"], entry["addr"], entry["size"]
        # The viewer combines the two entries of a free only if they are adjacent.
        assert asked is None or (action == "free_completed" and (addr, size) == asked), where
        if action == "segment_alloc":
            assert all(addr + size <= a or a + s <= addr for a, s in mapped.items()), f"{where}: segments overlap"
            mapped[addr] = size
        elif action == "alloc":
            homes = [a for a, s in mapped.items() if a <= addr and addr + size <= a + s]
            assert len(homes) == 1, f"{where}: in {len(homes)} segments"
            for other, (other_size, _) in live.items():
                assert addr + size <= other or other + other_size <= addr, f"{where}: overlaps what is live"
            live[addr] = (size, homes[0])
            total += size
            allocs += 1
            most = max(most, total)
            last = max(mapped)
            step_most = max(step_most, sum(s for s, home in live.values() if home == last))
        elif action == "free_requested":
            assert live.get(addr, (None,))[0] == size, f"{where}: frees what is not live"
            asked = (addr, size)
        elif action == "free_completed":
            assert asked is not None, where
            del live[addr]
            total -= size
            frees += 1
            asked = None
        else:
            raise AssertionError(f"{where}: action {action}")
    assert asked is None, "a free was not completed"
    assert mapped == {s["address"]: s["total_size"] for s in segments}, "segments of the trace and of the snapshot differ"
    blocks = {
        b["address"]: b["size"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"
    }
    assert blocks == {addr: size for addr, (size, _) in live.items()}, "what is live at the end differs"
    return {"most": most, "stepMost": step_most, "allocs": allocs, "frees": frees, "kept": sum(blocks.values())}


def main(path):
    with open(path, "rb") as file:
        snapshot = Strict(file).load()
        assert file.read() == b"", "bytes after the pickle"
    shape = {"segments": list, "device_traces": list, "allocator_settings": dict, "external_annotations": list}
    fields(snapshot, shape, "snapshot")
    assert len(snapshot["device_traces"]) == 1, "one device"
    for index, segment in enumerate(snapshot["segments"]):
        check_segment(segment, f"segments[{index}]")
        assert segment["device"] == 0, "one device"
    summary = check_trace(snapshot["device_traces"][0], snapshot["segments"])
    summary["segments"] = [s["total_size"] for s in snapshot["segments"]]
    print(json.dumps(summary))


for name in sys.argv[1:]:
    main(name)
