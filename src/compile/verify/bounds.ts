/** Rules `persistent`, `bounds` and `peak`: the offsets and sizes of step memory, for any calls. */

import { alignment } from "../../runtime/index.js";
import { alignUp, formatSpan, overlaps } from "../../units/index.js";
import type { Buffer, BufferSlice, Call } from "../program/program.js";
import { nameBuffer, nameCall, nameRange, nameSlice, rejection } from "./plan-error.js";
import type { Proposal } from "./proposal.js";

export function requireOwnMemory({ plan, block, buffers }: Proposal): void {
  for (const [buffer, offset] of plan.offsets) {
    if (buffer.storage === undefined) continue;
    const { span } = buffer.storage;
    const finding = `the plan gives ${nameBuffer(buffer)} the offset ${offset}, but it is persistent at ${formatSpan(span)}`;
    throw rejection("persistent", finding, { buffer: buffer.id, offset });
  }
  if (block === undefined) return;
  for (const buffer of buffers) {
    if (buffer.storage === undefined || !overlaps(block, buffer.storage.span)) continue;
    const { span } = buffer.storage;
    const finding = `the plan's memory at ${formatSpan(block)} overlaps ${nameBuffer(buffer)} at ${formatSpan(span)}`;
    throw rejection("persistent", finding, { buffer: buffer.id, address: span.address });
  }
}

export function requireBounds(proposal: Proposal): void {
  requireBlock(proposal);
  requireIdentity(proposal);
  for (const [buffer, offset] of proposal.plan.offsets) requireOffset(proposal, buffer, offset);
  for (const buffer of proposal.buffers) requireMemory(proposal, buffer);
  for (const [index, call] of proposal.program.entries()) {
    for (const { slice } of proposal.accesses[index] ?? []) requireInside(slice, call, index);
  }
}

function requireBlock({ plan, block }: Proposal): void {
  if (block === undefined) return;
  if (block.size < plan.bytes) {
    const finding = `the plan needs ${plan.bytes} bytes and its block has ${block.size}`;
    throw rejection("bounds", finding, { planBytes: plan.bytes, blockBytes: block.size });
  }
  if (block.address % alignment !== 0) {
    const finding = `the plan's memory begins at ${formatSpan(block)}, which is not a multiple of ${alignment}`;
    throw rejection("bounds", finding, { address: block.address });
  }
}

/** The rules compare step buffers by identity: two records of one buffer would look like two buffers. */
function requireIdentity({ plan, buffers }: Proposal): void {
  const byId = new Map<number, Buffer>();
  for (const buffer of [...buffers, ...plan.offsets.keys()]) {
    if (buffer.storage !== undefined) continue;
    const other = byId.get(buffer.id) ?? buffer;
    if (other !== buffer) {
      const finding = `${nameBuffer(other)} and ${nameBuffer(buffer)} are two records with one id`;
      throw rejection("bounds", finding, { buffer: buffer.id });
    }
    byId.set(buffer.id, buffer);
  }
}

function requireOffset({ plan }: Proposal, buffer: Buffer, offset: number): void {
  const { id, bytes } = buffer;
  if (!isCount(bytes)) {
    throw rejection("bounds", `${nameBuffer(buffer)} has ${bytes} bytes`, { buffer: id, bytes });
  }
  if (!isCount(offset) || offset % alignment !== 0) {
    const finding = `${nameBuffer(buffer)} begins at ${offset}, which is not a multiple of ${alignment}`;
    throw rejection("bounds", finding, { buffer: id, offset });
  }
  if (!(offset + bytes <= plan.bytes)) {
    const finding = `${nameBuffer(buffer)} has ${nameRange(offset, bytes)} of a plan of ${plan.bytes}`;
    throw rejection("bounds", finding, { buffer: id, offset, bytes, planBytes: plan.bytes });
  }
}

function requireMemory({ plan }: Proposal, buffer: Buffer): void {
  const { id, bytes, storage } = buffer;
  if (storage === undefined) {
    if (plan.offsets.has(buffer)) return;
    throw rejection("bounds", `${nameBuffer(buffer)} has no offset`, { buffer: id });
  }
  if (bytes > storage.span.size) {
    const finding = `${nameBuffer(buffer)} has ${bytes} bytes, and its memory is ${formatSpan(storage.span)}`;
    throw rejection("bounds", finding, { buffer: id, bytes, size: storage.span.size });
  }
}

function requireInside(slice: BufferSlice, call: Call, index: number): void {
  const { buffer, offset, size } = slice;
  if (isCount(offset) && isCount(size) && size > 0 && offset + size <= buffer.bytes) return;
  const finding = `${nameCall(call, index)} accesses ${nameSlice(slice)}, which has ${buffer.bytes}`;
  throw rejection("bounds", finding, { call: index, buffer: buffer.id, offset, size, bytes: buffer.bytes });
}

export function requirePeak({ plan }: Proposal): void {
  let highest = 0;
  for (const [{ bytes }, offset] of plan.offsets) highest = Math.max(highest, offset + bytes);
  const peak = alignUp(highest, alignment);
  if (plan.bytes === peak) return;
  throw rejection("peak", `it claims ${plan.bytes} bytes, and its buffers need ${peak}`, {
    planBytes: plan.bytes,
    peak,
  });
}

function isCount(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}
