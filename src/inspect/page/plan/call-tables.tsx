/** The tables of a step's kernels and calls: their columns, and their CSV files. */

import { download, fileName } from "../charts/figure.js";
import { toCsv } from "../tables/csv.js";
import { formatBandwidth, formatBytes, formatCount, formatNumber, formatPercent } from "../tables/format.js";
import type { TableColumn } from "../tables/sort-table.js";
import type { CallReport } from "../wire.js";
import type { KernelRow } from "./kernels.js";

export const kernelColumns: readonly TableColumn<KernelRow>[] = [
  { label: "kernel", value: ({ kernel }) => kernel, show: ({ kernel }) => <code>{kernel}</code> },
  { label: "kind", value: ({ kind }) => kind },
  {
    label: "µs",
    value: ({ us }) => us,
    show: ({ us }) => formatNumber(us),
    isNumber: true,
    title: "Microseconds per step",
  },
  {
    label: "share",
    value: ({ share }) => share,
    show: ({ share }) => formatPercent(share),
    isNumber: true,
    title: "Share of the measured time of all kernels",
  },
  {
    label: "calls",
    value: ({ calls }) => calls,
    show: ({ calls }) => formatCount(calls),
    isNumber: true,
    title: "Calls per step",
  },
  {
    label: "bytes",
    value: ({ bytes }) => bytes,
    show: ({ bytes }) => formatBytes(bytes),
    isNumber: true,
    title: "Bytes read and written per step",
  },
  {
    label: "GB/s",
    value: ({ bytes, us }) => (us ? bytes / us : undefined),
    show: ({ bytes, us }) => formatBandwidth(bytes, us),
    isNumber: true,
    title: "Bytes per time",
  },
];

type NumberedCall = CallReport & { readonly index: number };

export const callColumns: readonly TableColumn<NumberedCall>[] = [
  { label: "#", value: ({ index }) => index, isNumber: true, title: "Index in the step" },
  { label: "op", value: ({ op }) => op },
  { label: "kernel", value: ({ kernel }) => kernel, show: ({ kernel }) => <code>{kernel}</code> },
  { label: "shape", value: ({ shape }) => shape },
  {
    label: "phase",
    value: ({ phase }) => phase,
    show: ({ phase }) => <span class={`phase ${phase}`}>{phase}</span>,
  },
  { label: "stream", value: ({ stream }) => stream, isNumber: true },
  {
    label: "µs",
    value: ({ us }) => us,
    show: ({ us }) => formatNumber(us),
    isNumber: true,
    title: "Contribution to the step",
  },
  {
    label: "read",
    value: ({ readBytes }) => readBytes,
    show: ({ readBytes }) => formatBytes(readBytes),
    isNumber: true,
  },
  {
    label: "written",
    value: ({ writtenBytes }) => writtenBytes,
    show: ({ writtenBytes }) => formatBytes(writtenBytes),
    isNumber: true,
  },
];

export function saveKernels(run: string, rows: readonly KernelRow[]): void {
  const head = ["kernel", "kind", "us", "share", "calls", "bytes"];
  download(
    fileName(run, "kernels.csv"),
    toCsv(
      head,
      rows.map(({ kernel, kind, us, share, calls, bytes }) => [kernel, kind, us, share, calls, bytes]),
    ),
  );
}

export function saveCalls(run: string, calls: readonly CallReport[]): void {
  const head = ["op", "kernel", "kind", "shape", "phase", "stream", "us", "readBytes", "writtenBytes"];
  const rows = calls.map((call) => [
    call.op,
    call.kernel,
    call.kind,
    call.shape,
    call.phase,
    call.stream,
    call.us,
    call.readBytes,
    call.writtenBytes,
  ]);
  download(fileName(run, "calls.csv"), toCsv(head, rows));
}
