/**
 * Reads a pickle as strictly as PyTorch's memory viewer does: those opcodes, no others, and lists in batches
 * that fit a call's arguments. Tuples become `{ tuple: […] }`, and floats, unlike integers, `{ float: 0.5 }`.
 */

import assert from "node:assert/strict";

const maxInBatch = 1000;

export function readPickle(bytes: Uint8Array): unknown {
  const data = Buffer.from(bytes);
  const stack: unknown[] = [];
  const marks: number[] = [];
  let at = 0;
  const take = (size: number): Buffer => {
    assert.ok(at + size <= data.length, "the pickle ends too soon");
    at += size;
    return data.subarray(at - size, at);
  };
  const sinceMark = (): unknown[] => {
    const mark = marks.pop();
    assert.ok(mark !== undefined, "nothing was marked");
    return stack.splice(mark);
  };
  assert.deepEqual([...take(2)], [0x80, 4], "protocol 4");
  for (;;) {
    const opcode = take(1).toString("latin1");
    if (opcode === "N") stack.push(null);
    else if (opcode === "\x88" || opcode === "\x89") stack.push(opcode === "\x88");
    else if (opcode === "K") stack.push(take(1).readUInt8());
    else if (opcode === "M") stack.push(take(2).readUInt16LE());
    else if (opcode === "J") stack.push(take(4).readInt32LE());
    else if (opcode === "\x8a") {
      assert.equal(take(1).readUInt8(), 8, "bytes of a long");
      stack.push(Number(take(8).readBigInt64LE()));
    } else if (opcode === "G") stack.push({ float: take(8).readDoubleBE() });
    else if (opcode === "\x8c") stack.push(take(take(1).readUInt8()).toString("utf8"));
    else if (opcode === "X") stack.push(take(take(4).readUInt32LE()).toString("utf8"));
    else if (opcode === "]") stack.push([]);
    else if (opcode === "}") stack.push({});
    else if (opcode === ")") stack.push({ tuple: [] });
    else if (opcode === "(") marks.push(stack.length);
    else if (opcode === "t") stack.push({ tuple: sinceMark() });
    else if (opcode === "e") {
      const items = sinceMark();
      assert.ok(items.length <= maxInBatch, "a batch is too long for the viewer");
      const list = stack.at(-1);
      assert.ok(Array.isArray(list), "appended to no list");
      list.push(...items);
    } else if (opcode === "u") {
      const items = sinceMark();
      assert.equal(items.length % 2, 0, "a key without a value");
      const dict = stack.at(-1) as Record<string, unknown>;
      for (let index = 0; index < items.length; index += 2) {
        const key = items[index];
        assert.ok(typeof key === "string" && !Object.hasOwn(dict, key), `the key ${String(key)}`);
        Object.defineProperty(dict, key, { value: items[index + 1], enumerable: true, writable: true });
      }
    } else if (opcode === ".") {
      assert.equal(at, data.length, "bytes after the end");
      assert.equal(stack.length, 1, "values on the stack");
      return stack[0];
    } else assert.fail(`opcode ${JSON.stringify(opcode)} at ${at - 1}`);
  }
}
