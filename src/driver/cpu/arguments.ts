/** Checks what a caller passes to a launch or a copy, and copies it into the form that runs. */

import { HoldfastError } from "../../errors/index.js";
import { formatBytes, formatSpan, type Span } from "../../units/index.js";
import type { Argument, HostSpan, Launch, Parameter } from "../driver.js";
import type { Command, HostBuffer, KernelState } from "./commands.js";
import type { DeviceMemory } from "./memory.js";

const mostBlocks = 2 ** 31 - 1;

const scalarRanges = {
  i32: { least: -(2 ** 31), most: 2 ** 31 - 1, isWhole: true },
  u32: { least: 0, most: 2 ** 32 - 1, isWhole: true },
  f32: { least: Number.NEGATIVE_INFINITY, most: Number.POSITIVE_INFINITY, isWhole: false },
  f64: { least: Number.NEGATIVE_INFINITY, most: Number.POSITIVE_INFINITY, isWhole: false },
} as const;

export function lowerLaunch(
  kernel: KernelState,
  parameters: readonly Parameter[],
  { blocks, arguments: given }: Launch,
  memory: DeviceMemory,
): Command {
  if (!Number.isInteger(blocks) || blocks < 0 || blocks > mostBlocks) {
    throw badArgument(
      `Launch of "${kernel.name}" with ${blocks} blocks; give a whole number from 0 to ${mostBlocks}.`,
    );
  }
  if (given.length !== parameters.length) {
    throw badArgument(
      `Launch of "${kernel.name}" with ${given.length} arguments; it takes ${parameters.length} (${parameters.join(", ")}).`,
    );
  }
  const call = [0, 0];
  const spans: Span[] = [];
  for (const [index, parameter] of parameters.entries()) {
    const argument = given[index] as Argument;
    const what = () => `Argument ${index} of kernel "${kernel.name}" (${parameter})`;
    if (parameter === "in" || parameter === "out" || parameter === "inout") {
      if (typeof argument !== "object")
        throw badArgument(`${what()} is ${argument}; pass a span of device memory.`);
      const span = liveSpan(memory, argument, what);
      spans.push(span);
      call.push(kernel.addressBase + span.address);
    } else {
      call.push(scalar(parameter, argument, what));
    }
  }
  return { kind: "launch", kernel, blocks, call, spans };
}

/** A copy of the span, once there is memory behind all of it. */
export function liveSpan(memory: DeviceMemory, { address, size }: Span, what: () => string): Span {
  const range = { address, size };
  if (!memory.holds(range)) {
    const message = `${what()} is ${formatSpan(range)}, where no memory is committed. Pass a span inside a committed part of a reservation.`;
    throw new HoldfastError("DEAD_ADDRESS", message, { numbers: { address, size } });
  }
  return range;
}

/** The host buffer's offset, once the span lies inside it. */
export function hostOffset(host: HostBuffer, { offset, size }: HostSpan): number {
  if (
    !Number.isInteger(offset) ||
    !Number.isInteger(size) ||
    offset < 0 ||
    size < 0 ||
    offset + size > host.bytes.length
  ) {
    throw badArgument(
      `Host span of ${size} bytes at offset ${offset} lies outside host memory #${host.id}, which has ${host.bytes.length} bytes.`,
    );
  }
  return offset;
}

export function requireSameSize(call: string, target: number, source: number): void {
  if (target !== source) {
    throw badArgument(
      `${call} of ${formatBytes(source)} into ${formatBytes(target)} (${source} and ${target} bytes); make both spans the same size.`,
    );
  }
}

export function requireByte(byte: number): void {
  if (!Number.isInteger(byte) || byte < 0 || byte > 255) {
    throw badArgument(`Fill with ${byte}; a byte is a whole number from 0 to 255.`);
  }
}

function scalar(parameter: keyof typeof scalarRanges, argument: Argument, what: () => string): number {
  if (typeof argument !== "number") throw badArgument(`${what()} is a span; pass a number.`);
  const { least, most, isWhole } = scalarRanges[parameter];
  if (isWhole && !(Number.isInteger(argument) && argument >= least && argument <= most)) {
    throw badArgument(`${what()} is ${argument}; pass a whole number from ${least} to ${most}.`);
  }
  return argument;
}

function badArgument(message: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", message);
}
