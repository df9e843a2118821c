/**
 * The step memory picture on a canvas. All rectangles are drawn once per view; the parts that follow the pointer are on a second
 * canvas above.
 */

import type { TargetedKeyboardEvent, TargetedPointerEvent } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { isSameRange, moveRange, type Range, zoomRange } from "../charts/scales.js";
import { useInk } from "../charts/theme.js";
import { formatCount } from "../tables/format.js";
import type { PlanRecord } from "../wire.js";
import { drawBoxes, drawOverlay, type PlotArea, plotArea, type View } from "./plan-drawing.js";
import {
  BoxIndex,
  type Direction,
  matchingTensors,
  neighbour,
  type PlanPicture,
  phaseOf,
} from "./plan-picture.js";
import { describeTensor, TensorTooltip, tooltipPosition } from "./tensor-tooltip.js";

export interface PlanCanvasProps {
  readonly plan: PlanRecord;
  readonly picture: PlanPicture;
  readonly search: string;
  /** The index of the selected tensor, or -1. */
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
  const matches = useMemo(() => matchingTensors(tensors, search), [tensors, search]);
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
    if (pen) drawBoxes(pen, { picture, looks, matches, view, area, ink });
  }, [picture, looks, matches, view, width, ink]);
  const focused = hovered >= 0 ? hovered : pinned;
  useEffect(() => {
    const pen = penOf(above.current, width);
    if (pen) drawOverlay(pen, { picture, view, area, ink, boxes: [pinned, hovered] });
  }, [picture, view, width, ink, pinned, hovered]);

  const isZoomed = !isSameRange(view.calls, picture.calls) || !isSameRange(view.bytes, picture.bytes);
  // Not a prop, because Preact's listener is passive and the page would scroll.
  const wheel = useRef<(event: WheelEvent) => void>(() => {});
  wheel.current = (event) => {
    // At the zoom limit, the wheel scrolls the page.
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

  function zoom(call: number, byte: number, factor: number, isHorizontalOnly = false): void {
    setView((last) => ({
      calls: zoomRange(last.calls, call, factor, picture.calls, 2),
      bytes: isHorizontalOnly ? last.bytes : zoomRange(last.bytes, byte, factor, picture.bytes, 1024),
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
        // biome-ignore lint/a11y/noNoninteractiveTabindex: an application role has keyboard navigation.
        tabIndex={0}
        aria-label={`Step memory: ${formatCount(tensors.length)} tensors. Arrow keys move from one to the next, Enter selects it, plus and minus zoom, 0 shows everything. The table below has the same data.`}
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
          <TensorTooltip tensor={tensor} plan={plan} {...tooltipPosition(picture, focused, view, area)} />
        ) : null}
      </div>
      <p class="plan-status" aria-live="polite">
        {tensor
          ? describeTensor(tensor, plan)
          : "Hover over a rectangle to see its tensor; click to select it."}
        {isZoomed ? (
          <button type="button" class="small" onClick={reset}>
            Show all
          </button>
        ) : null}
      </p>
    </div>
  );
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
