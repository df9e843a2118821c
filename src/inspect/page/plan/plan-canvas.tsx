/**
 * The picture of step memory on a canvas: all rectangles are drawn once for a view, into a canvas of their own; what moves with
 * the pointer lies on another one above it.
 */

import type { TargetedKeyboardEvent, TargetedPointerEvent } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { isSameRange, moveRange, type Range, zoomRange } from "../charts/scales.js";
import { useInk } from "../charts/theme.js";
import { formatBytes, formatCount } from "../tables/format.js";
import type { PlannedTensor, PlanRecord } from "../wire.js";
import { drawBoxes, drawOverlay, type PlotArea, plotArea, type View } from "./plan-drawing.js";
import { BoxIndex, type Direction, matching, neighbour, type PlanPicture, phaseOf } from "./plan-picture.js";

export interface PlanCanvasProps {
  readonly plan: PlanRecord;
  readonly picture: PlanPicture;
  readonly search: string;
  /** The tensor that is held, by its place; -1 for none. */
  readonly pinned: number;
  readonly onPin: (index: number) => void;
}

const height = 420;
const directions: Readonly<Record<string, Direction>> = {
  ArrowLeft: "left",
  ArrowRight: "right",
  ArrowUp: "up",
  ArrowDown: "down",
};

export function PlanCanvas({ plan, picture, search, pinned, onPin }: PlanCanvasProps) {
  const { tensors } = plan.memory;
  const host = useRef<HTMLDivElement>(null);
  const below = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [hovered, setHovered] = useState(-1);
  const [view, setView] = useState<View>({ calls: picture.calls, bytes: picture.bytes });
  const drag = useRef<{ x: number; y: number; view: View; hasMoved: boolean } | undefined>(undefined);
  const ink = useInk();

  const index = useMemo(() => new BoxIndex(picture), [picture]);
  const found = useMemo(() => matching(tensors, search), [tensors, search]);
  const looks = useMemo(
    () => tensors.map((tensor) => ({ phase: phaseOf(tensor, plan.calls), isSaved: tensor.isSaved })),
    [plan],
  );
  const area = plotArea(width, height);

  useEffect(() => setView({ calls: picture.calls, bytes: picture.bytes }), [picture]);
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    setWidth(element.clientWidth);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const pen = penOf(below.current, width);
    if (pen) drawBoxes(pen, { picture, looks, found, view, area, ink });
  }, [picture, looks, found, view, width, ink]);
  const focused = hovered >= 0 ? hovered : pinned;
  useEffect(() => {
    const pen = penOf(above.current, width);
    if (pen) drawOverlay(pen, { picture, view, area, ink, boxes: [pinned, hovered] });
  }, [picture, view, width, ink, pinned, hovered]);

  const isZoomed = !isSameRange(view.calls, picture.calls) || !isSameRange(view.bytes, picture.bytes);
  // By hand: Preact's own listener would be passive, and the page would scroll along.
  const wheel = useRef<(event: WheelEvent) => void>(() => {});
  wheel.current = (event) => {
    // What can't get smaller lets the page scroll on.
    if (event.ctrlKey || (event.deltaY > 0 && !isZoomed)) return;
    event.preventDefault();
    const { call, byte } = pointAt(event, host.current, area, view);
    zoom(call, byte, 1.0018 ** event.deltaY, event.shiftKey);
  };
  useEffect(() => {
    const element = host.current;
    const listen = (event: WheelEvent): void => wheel.current(event);
    element?.addEventListener("wheel", listen, { passive: false });
    return () => element?.removeEventListener("wheel", listen);
  }, []);

  function zoom(call: number, byte: number, factor: number, isKMajorOnly = false): void {
    setView((last) => ({
      calls: zoomRange(last.calls, call, factor, picture.calls, 2),
      bytes: isKMajorOnly ? last.bytes : zoomRange(last.bytes, byte, factor, picture.bytes, 1024),
    }));
  }
  const reset = (): void => setView({ calls: picture.calls, bytes: picture.bytes });

  const onPointerMove = (event: TargetedPointerEvent<HTMLDivElement>): void => {
    const start = drag.current;
    if (start && event.buttons === 1) {
      const [across, up] = [event.clientX - start.x, event.clientY - start.y];
      if (Math.abs(across) + Math.abs(up) > 4) start.hasMoved = true;
      if (!start.hasMoved) return;
      const by = (range: Range, pixels: number, length: number): number =>
        (pixels * (range.max - range.min)) / length;
      setView({
        calls: moveRange(start.view.calls, -by(start.view.calls, across, area.width), picture.calls),
        bytes: moveRange(start.view.bytes, by(start.view.bytes, up, area.height), picture.bytes),
      });
      return;
    }
    const { call, byte } = pointAt(event, host.current, area, view);
    setHovered(index.at(call, byte));
  };

  const onKeyDown = (event: TargetedKeyboardEvent<HTMLDivElement>): void => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const direction = directions[event.key];
    const box = picture.boxes[focused];
    const [call, byte] = box
      ? [(box.left + box.right) / 2, (box.bottom + box.top) / 2]
      : [middle(view.calls), middle(view.bytes)];
    if (direction) setHovered(neighbour(picture.boxes, focused, direction));
    else if (event.key === "Enter" || event.key === " ") onPin(hovered === pinned ? -1 : hovered);
    else if (event.key === "+") zoom(call, byte, 0.6);
    else if (event.key === "-") zoom(call, byte, 1 / 0.6);
    else if (event.key === "0") reset();
    else if (event.key === "Escape") {
      onPin(-1);
      setHovered(-1);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const tensor = tensors[focused];
  return (
    <div class="plan">
      <div
        ref={host}
        class="plan-picture"
        style={{ height: `${height}px` }}
        role="application"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: an application is moved through by keys.
        tabIndex={0}
        aria-label={`Step memory: ${formatCount(tensors.length)} tensors. Arrow keys move from one to the next, Enter holds it, plus and minus zoom, 0 shows everything. The table below has the same.`}
        data-boxes={picture.boxes.length}
        data-area={[area.left, area.top, area.width, area.height].join(" ")}
        onPointerDown={(event) => {
          drag.current = { x: event.clientX, y: event.clientY, view, hasMoved: false };
          if (isZoomed) event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={onPointerMove}
        onPointerUp={(event) => {
          const hasMoved = drag.current?.hasMoved ?? false;
          drag.current = undefined;
          const { call, byte } = pointAt(event, host.current, area, view);
          if (!hasMoved) onPin(index.at(call, byte));
        }}
        onPointerLeave={() => setHovered(-1)}
        onDblClick={reset}
        onKeyDown={onKeyDown}
      >
        <canvas ref={below} />
        <canvas ref={above} />
        {tensor && hovered >= 0 ? (
          <Tooltip tensor={tensor} plan={plan} {...tooltipPlace(picture, focused, view, area)} />
        ) : null}
      </div>
      <p class="plan-told" aria-live="polite">
        {tensor ? describe(tensor, plan) : "Hover a rectangle to see what it is; click it to keep it."}
        {isZoomed ? (
          <button type="button" class="small" onClick={reset}>
            Show all
          </button>
        ) : null}
      </p>
    </div>
  );
}

/** All that is known of a tensor, in one line. */
export function describe(tensor: PlannedTensor, { calls }: PlanRecord): string {
  const { label, type, bytes, offset, birth, death, isSaved } = tensor;
  const facts = [
    `${label}: ${type ?? "scratch memory"}`,
    formatBytes(bytes),
    `at byte ${formatCount(offset)}`,
    `calls ${birth}–${death}`,
    `${phaseOf(tensor, calls)}${isSaved ? ", saved for backward" : ""}`,
  ];
  return facts.join(" · ");
}

interface TooltipProps {
  readonly tensor: PlannedTensor;
  readonly plan: PlanRecord;
  readonly left: number;
  readonly top: number;
  readonly isLeftward: boolean;
}

function Tooltip({ tensor, plan, left, top, isLeftward }: TooltipProps) {
  const { label, type, bytes, offset, birth, death, isSaved } = tensor;
  const nameOf = (place: number): string => plan.calls[Math.floor(place)]?.op ?? "";
  return (
    <div
      class={isLeftward ? "tooltip leftward" : "tooltip"}
      style={{ left: `${left}px`, top: `${top}px` }}
      role="tooltip"
    >
      <b>{label}</b>
      <dl>
        <dt>type</dt>
        <dd>{type ?? "scratch memory"}</dd>
        <dt>bytes</dt>
        <dd>
          {formatBytes(bytes)} ({formatCount(bytes)})
        </dd>
        <dt>address</dt>
        <dd>
          {formatCount(offset)} to {formatCount(offset + bytes)}
        </dd>
        <dt>made by</dt>
        <dd>
          call {birth} {nameOf(birth)}
        </dd>
        <dt>last read by</dt>
        <dd>
          call {death} {nameOf(death)}
        </dd>
        <dt>phase</dt>
        <dd>{phaseOf(tensor, plan.calls)}</dd>
        <dt>saved</dt>
        <dd>{isSaved ? "for backward" : "no"}</dd>
      </dl>
    </div>
  );
}

function tooltipPlace(
  picture: PlanPicture,
  index: number,
  view: View,
  area: PlotArea,
): Pick<TooltipProps, "left" | "top" | "isLeftward"> {
  const box = picture.boxes[index] ?? { left: 0, right: 0, bottom: 0, top: 0 };
  const share = (value: number, { min, max }: Range): number =>
    Math.max(0, Math.min(1, (value - min) / (max - min)));
  const isLeftward = share((box.left + box.right) / 2, view.calls) > 0.5;
  const left = area.left + share(isLeftward ? box.left : box.right, view.calls) * area.width;
  const top = area.top + (1 - share(box.top, view.bytes)) * area.height;
  return { left: left + (isLeftward ? -8 : 8), top: Math.min(top, area.height - 170), isLeftward };
}

function penOf(canvas: HTMLCanvasElement | null, width: number): CanvasRenderingContext2D | undefined {
  if (!canvas || width === 0) return undefined;
  const scale = devicePixelRatio;
  const [across, up] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== across || canvas.height !== up) {
    canvas.width = across;
    canvas.height = up;
  }
  const pen = canvas.getContext("2d") ?? undefined;
  pen?.setTransform(scale, 0, 0, scale, 0, 0);
  pen?.clearRect(0, 0, width, height);
  return pen;
}

function pointAt(
  event: { readonly clientX: number; readonly clientY: number },
  element: HTMLElement | null,
  area: PlotArea,
  { calls, bytes }: View,
): { call: number; byte: number } {
  const { left = 0, top = 0 } = element?.getBoundingClientRect() ?? {};
  const across = (event.clientX - left - area.left) / area.width;
  const up = 1 - (event.clientY - top - area.top) / area.height;
  if (across < 0 || across > 1 || up < 0 || up > 1) return { call: -1, byte: -1 };
  return {
    call: calls.min + across * (calls.max - calls.min),
    byte: bytes.min + up * (bytes.max - bytes.min),
  };
}

function middle({ min, max }: Range): number {
  return (min + max) / 2;
}
