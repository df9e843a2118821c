/** The doctor's report for people: written row by row as things are found, so that a run that hangs shows where. */

import type { CudaLibraryInfo } from "../../driver/index.js";
import { formatBytes, formatDuration } from "../../units/index.js";
import type { DeviceFacts, DoctorListener, DoctorReport } from "./doctor.js";
import type { CudaFacts, GpuFacts } from "./gpus.js";
import type { MachineFacts } from "./machine.js";
import { type DoctorPhase, type PhaseResult, phaseNames } from "./phase-log.js";
import { nodesText, type StepFigures } from "./smoke-test.js";

const nameWidth = 14;
const verdictWidth = 7;
const timeWidth = 7;
const deadlineWidth = 9;

const libraryNames: Readonly<Record<CudaLibraryInfo["library"], string>> = {
  cuda: "driver",
  nvrtc: "NVRTC",
  cublasLt: "cuBLASLt",
};

export interface TextReportOptions {
  /** Holdfast's own. */
  readonly version: string;
  /** Where lines are broken. */
  readonly columns: number;
  readonly write: (text: string) => void;
}

export class TextReport implements DoctorListener {
  readonly #options: TextReportOptions;

  constructor(options: TextReportOptions) {
    this.#options = options;
  }

  looked(machine: MachineFacts, cuda: CudaFacts): void {
    this.#options.write(`holdfast ${this.#options.version}\n`);
    this.#heading("machine");
    this.#tellMachine(machine);
    this.#heading("CUDA");
    this.#tellCuda(cuda);
    this.#heading("test");
  }

  opened({ insteadOfGpu }: DeviceFacts): void {
    if (insteadOfGpu !== null) this.#row("", "No GPU can be used here (see above), so this is the CPU.");
  }

  entered(name: DoctorPhase): void {
    this.#options.write(`  ${name.padEnd(nameWidth)}`);
  }

  left({ name, verdict, elapsedMs, deadlineMs, detail, failure }: PhaseResult): void {
    // The name of a phase was written when it was entered, and none was entered that is skipped.
    if (verdict === "skipped") {
      this.#row(name, verdict);
      return;
    }
    const judged = (verdict === "failed" ? "FAILED" : verdict).padEnd(verdictWidth);
    const elapsed = formatDuration(elapsedMs).padStart(timeWidth);
    const deadline = ` of ${formatDuration(deadlineMs)}`.padEnd(deadlineWidth);
    const start = judged + elapsed + deadline;
    const text = [detail, failure].filter((part) => part !== "").join(". ");
    this.#options.write(`${start}${this.#wrap(text, 2 + nameWidth + start.length)}\n`);
  }

  ended({ passed, phases, step, elapsedMs }: DoctorReport): void {
    if (step) this.#tellStep(step);
    const named = (verdict: PhaseResult["verdict"]): string[] =>
      phases.filter((phase) => phase.verdict === verdict).map(({ name }) => name);
    const skipped = named("skipped").length;
    const took = formatDuration(elapsedMs);
    const faults = `FAILED: ${named("failed").join(", ")}${skipped > 0 ? `; ${skipped} skipped` : ""}`;
    this.#options.write(
      passed ? `\nAll ${phaseNames.length} phases passed, in ${took}.\n` : `\n${faults}, in ${took}.\n`,
    );
  }

  #tellMachine(machine: MachineFacts): void {
    const { system, release, architecture, node, processor, threads, cgroupCpus, memory, settings } = machine;
    const { totalBytes, availableBytes, cgroupLimitBytes, cgroupUsedBytes } = memory;
    const limits = [
      ...(cgroupLimitBytes === null
        ? []
        : [`limit ${formatBytes(cgroupLimitBytes)}, ${formatBytes(cgroupUsedBytes ?? 0)} in use`]),
      ...(cgroupCpus === null ? [] : [`${Number(cgroupCpus.toFixed(2))} CPUs`]),
    ];
    const set = Object.entries(settings).map(([name, text]) => `${name}=${text}`);
    this.#row("system", `${system} ${release}, ${architecture}, Node ${node}`);
    this.#row("processor", `${processor}, ${threads} ${threads === 1 ? "thread" : "threads"}`);
    this.#row("memory", `${formatBytes(totalBytes)}, of which ${formatBytes(availableBytes)} can be had`);
    this.#row("control group", limits.join("; ") || "no limit");
    this.#row("settings", set.join(", ") || "none in the environment");
  }

  #tellCuda({ libraries, gpus, problem, kernelCache }: CudaFacts): void {
    for (const library of libraries) {
      const name = libraryNames[library.library];
      if ("problem" in library) this.#row(name, library.summary);
      else if (library.library === "cuda") this.#row(name, `for CUDA ${library.version}, ${library.path}`);
      else this.#row(name, `${library.version}, ${library.path}`);
    }
    for (const gpu of gpus) this.#tellGpu(gpu);
    // A library that is missing is told above.
    if (problem !== null && !libraries.some((one) => "problem" in one && one.problem === problem))
      this.#row("GPUs", problem);
    this.#row("kernel cache", kernelCache);
  }

  #tellGpu({ index, name, computeCapability, memory, multiprocessors, totalBytes, opened }: GpuFacts): void {
    this.#row(
      `GPU ${index}`,
      `${name}, compute capability ${computeCapability}, ${multiprocessors} multiprocessors`,
    );
    const size = `${formatBytes(totalBytes)} of ${memory} memory`;
    if ("problem" in opened) {
      this.#row("", size);
      this.#row("", opened.problem);
      return;
    }
    const { freeBytes, budgetBytes, reason, allocation } = opened;
    const how = allocation === "virtual" ? "mapped in parts (virtual memory API)" : "allocated whole";
    this.#row("", `${size}, ${formatBytes(freeBytes)} free, ${how}`);
    this.#row("", `default budget ${formatBytes(budgetBytes)} (${reason})`);
  }

  #tellStep(step: StepFigures): void {
    const { batch, eagerMs, replayedMs, eagerBytes, replayedBytes } = step;
    const moved = ({ up, down }: StepFigures["eagerBytes"]): string =>
      `${formatBytes(up)} up, ${formatBytes(down)} down`;
    this.#heading("step");
    this.#row("eager", `${formatDuration(eagerMs)} at batch ${batch}; ${moved(eagerBytes)}`);
    this.#row("replayed", `${formatDuration(replayedMs)} at batch ${batch}; ${moved(replayedBytes)}`);
    this.#row("graph", nodesText(step));
  }

  #heading(text: string): void {
    this.#options.write(`\n${text}\n`);
  }

  #row(name: string, text: string): void {
    this.#options.write(`  ${name.padEnd(nameWidth)}${this.#wrap(text, 2 + nameWidth)}\n`);
  }

  /** Breaks a text between words; its further lines begin where the first one does. */
  #wrap(text: string, start: number): string {
    const lines = [""];
    for (const word of text.split(/\s+/)) {
      const line = lines.pop() ?? "";
      const longer = line === "" ? word : `${line} ${word}`;
      if (line === "" || start + longer.length <= this.#options.columns) lines.push(longer);
      else lines.push(line, word);
    }
    return lines.join(`\n${" ".repeat(start)}`);
  }
}
