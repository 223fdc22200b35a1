//! The memory of a device over a step as SVG, for documents: what stays, every buffer where it lies, the line and the peak. It has its
//! colours for light and for dark, and needs no script.

use std::fmt::Write;

use plimsoll_base::Bytes;

use crate::picture::{Buffer, Device, Kind, Model, Stage};
use crate::text::duration;
use crate::{escaped, shown};

const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 58.0;

/// Colours by the time at which a buffer begins, of the page's ramp; dark ones first.
const RAMP: [(u8, u8, u8); 5] = [(0x24, 0x43, 0x7a), (0x2d, 0x6f, 0x9e), (0x35, 0x96, 0xa3), (0x62, 0xbb, 0x9c), (0xb4, 0xdd, 0x9b)];

const STYLE: &str = "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#5a6472}\
.t{font-size:16px;font-weight:600;fill:#1b2430}.i{fill:#1b2430}.p{fill:#fff}.d{fill:#101820}.back{fill:#fff;stroke:#e3e1da}.g{stroke:#eceae4}\
.line{stroke:#c0392b;stroke-width:2}.lt{fill:#c0392b;font-weight:600}.peak{stroke:#1b2430;stroke-dasharray:3 3}.s{fill:#e6a532}.l{opacity:.3}.c{fill:#b0528f}\
.variables{fill:#8a93a1}.constants{fill:#a9b0bb}.ends{fill:#c6cbd3}.overhead{fill:#6c7583}.b{stroke:#fff;stroke-width:.6}\
@media(prefers-color-scheme:dark){text{fill:#a0a9b6}.t,.i{fill:#e6e9ee}.back{fill:#181d25;stroke:#2b323d}.g{stroke:#232a34}.b{stroke:#181d25}\
.line{stroke:#ff7461}.lt{fill:#ff7461}.peak{stroke:#e6e9ee}}";

/// The device of a model with the highest peak, in its first stage; none for a model without one.
pub fn memory(model: &Model, title: &str) -> Option<String> {
    let stage = model.stages.first()?;
    let device = stage.devices.iter().max_by_key(|device| (device.peak, std::cmp::Reverse(device.need)))?;
    Some(Drawing::new(model, stage, device).draw(title))
}

struct Drawing<'a> {
    model: &'a Model,
    stage: &'a Stage,
    device: &'a Device,
    /// For each command, when it starts and ends.
    spans: Vec<(f64, f64)>,
    end: f64,
    /// The line, where it is not far above the peak.
    limit: Option<Bytes>,
    top: f64,
}

impl<'a> Drawing<'a> {
    fn new(model: &'a Model, stage: &'a Stage, device: &'a Device) -> Drawing<'a> {
        let queue = device.queue.and_then(|queue| stage.queues.get(queue));
        let commands = queue.map_or(&[][..], |queue| &queue.commands[..]);
        let is_timed = stage.seconds > 0.0;
        let mut spans: Vec<(f64, f64)> = commands
            .iter()
            .enumerate()
            .map(|(at, command)| if is_timed { command.predicted } else { (at as f64, at as f64 + 1.0) })
            .collect();
        let end = if is_timed { stage.seconds } else { spans.len().max(1) as f64 };
        if spans.is_empty() {
            spans.push((0.0, end));
        }
        let limit = model.needs.get(device.need).and_then(|need| need.limit);
        let limit = limit.filter(|limit| limit.0 as f64 <= 1.7 * device.peak.0 as f64);
        let top = 1.04 * device.peak.max(limit.unwrap_or_default()).0.max(1) as f64;
        Drawing { model, stage, device, spans, end, limit, top }
    }

    fn x(&self, time: f64) -> f64 {
        LEFT + time / self.end * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, bytes: f64) -> f64 {
        HEIGHT - BOTTOM - bytes / self.top * (HEIGHT - TOP - BOTTOM)
    }

    fn draw(&self, title: &str) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n<rect class=\"back\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"10\"/>\n",
            escaped(&shown(title)),
            WIDTH - 1.0,
            HEIGHT - 1.0
        );
        self.heading(&mut svg, title);
        self.axes(&mut svg);
        self.bands(&mut svg);
        self.buffers(&mut svg);
        self.lines(&mut svg);
        self.legend(&mut svg);
        svg + "</svg>\n"
    }

    fn heading(&self, svg: &mut String, title: &str) {
        let need = self.model.needs.get(self.device.need);
        let name = need.map_or("", |need| &need.short);
        let step = if self.stage.seconds > 0.0 {
            format!(", a step of {} by the table of costs", duration(self.stage.seconds))
        } else {
            String::new()
        };
        let _ = writeln!(svg, "<text class=\"t\" x=\"20\" y=\"28\">{}</text>", escaped(&shown(title)));
        let said = format!("{}: peak {}{step}", shown(name), self.device.peak);
        let _ = writeln!(svg, "<text x=\"20\" y=\"48\">{}</text>", escaped(&said));
    }

    fn axes(&self, svg: &mut String) {
        let step = ((self.top / 6.0).max(1.0)).log2().ceil().exp2();
        let mut mark = 0.0;
        while mark <= self.top {
            let y = self.y(mark);
            let _ = writeln!(svg, "<path class=\"g\" d=\"M{LEFT} {y:.1}H{}\"/>", WIDTH - RIGHT);
            let _ = writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", LEFT - 8.0, y + 4.0, Bytes(mark as u64));
            mark += step;
        }
        if self.stage.seconds <= 0.0 {
            return;
        }
        let rough = self.end / 7.0;
        let mut step = 10f64.powf(rough.log10().floor());
        step *= if rough / step > 5.0 {
            10.0
        } else if rough / step > 2.0 {
            5.0
        } else {
            2.0
        };
        for mark in 1..=(self.end / step) as u32 {
            let time = f64::from(mark) * step;
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                self.x(time),
                HEIGHT - BOTTOM + 18.0,
                duration(time)
            );
        }
    }

    fn bands(&self, svg: &mut String) {
        let mut sum = 0.0;
        for band in &self.device.bands {
            let (top, bottom) = (self.y(sum + band.bytes.0 as f64), self.y(sum));
            let class = if band.name == "fed and fetched" { "ends" } else { &band.name };
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{}\" height=\"{:.1}\"><title>{} {}</title></rect>",
                WIDTH - LEFT - RIGHT,
                bottom - top,
                band.name,
                band.bytes
            );
            if bottom - top > 15.0 {
                let ink = if matches!(class, "ends" | "constants" | "variables") { "d" } else { "p" };
                let _ = writeln!(
                    svg,
                    "<text class=\"{ink}\" x=\"{}\" y=\"{:.1}\">{} {}</text>",
                    LEFT + 8.0,
                    (top + bottom) / 2.0 + 4.5,
                    band.name,
                    band.bytes
                );
            }
            sum += band.bytes.0 as f64;
        }
    }

    fn buffers(&self, svg: &mut String) {
        let base = self.device.resident().0 as f64;
        svg.push_str("<g class=\"b\">\n");
        let mut labels = String::new();
        for buffer in &self.device.buffers {
            let last = self.spans.len() - 1;
            let (from, to) = (self.spans[(buffer.commands.0 as usize).min(last)].0, self.spans[(buffer.commands.1 as usize).min(last)].1);
            let (left, right) = (self.x(from), self.x(to));
            let (top, bottom) = (self.y(base + (buffer.offset + buffer.bytes) as f64), self.y(base + buffer.offset as f64));
            let (width, height) = ((right - left).max(0.5), (bottom - top).max(0.4));
            let (fill, is_pale) = self.fill(buffer);
            let name = self.name(buffer);
            let _ = writeln!(
                svg,
                "<rect {fill} x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{} {}</title></rect>",
                escaped(&name),
                Bytes(buffer.bytes)
            );
            let short = name.rsplit('/').next().unwrap_or_default();
            let room = ((width - 10.0) / 7.4) as usize;
            if height > 15.0 && room >= short.chars().count() && !short.is_empty() && !buffer.is_loop() {
                let ink = if is_pale { "d" } else { "p" };
                let _ = writeln!(
                    labels,
                    "<text class=\"{ink}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    left + 5.0,
                    (top + bottom) / 2.0 + 4.5,
                    escaped(short)
                );
            }
        }
        svg.push_str("</g>\n");
        svg.push_str(&labels);
    }

    /// The colour of a buffer, and whether it is a light one.
    fn fill(&self, buffer: &Buffer) -> (String, bool) {
        match buffer.kind {
            Kind::Scratch if buffer.is_loop() => ("class=\"s l\"".to_string(), true),
            Kind::Scratch => ("class=\"s\"".to_string(), true),
            Kind::Copy => ("class=\"c\"".to_string(), false),
            Kind::Value | Kind::Again => {
                let place = f64::from(buffer.commands.0) / self.spans.len() as f64 * (RAMP.len() - 1) as f64;
                let (at, part) = ((place as usize).min(RAMP.len() - 2), place.fract());
                let mix = |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * part).round() as u8;
                let ((a, b, c), (d, e, f)) = (RAMP[at], RAMP[at + 1]);
                let (red, green, blue) = (mix(a, d), mix(b, e), mix(c, f));
                let brightness = 0.299 * f64::from(red) + 0.587 * f64::from(green) + 0.114 * f64::from(blue);
                (format!("fill=\"#{red:02x}{green:02x}{blue:02x}\""), brightness > 140.0)
            }
        }
    }

    fn name(&self, buffer: &Buffer) -> String {
        let node = buffer.values.first().and_then(|value| self.model.nodes.get(value.node as usize));
        let name = shown(node.map_or("", |(name, _)| name));
        match buffer.kind {
            Kind::Scratch if buffer.is_loop() => format!("body of {name}"),
            Kind::Scratch => format!("scratch of {name}"),
            _ => name,
        }
    }

    fn lines(&self, svg: &mut String) {
        let (right, peak) = (WIDTH - RIGHT, self.y(self.device.peak.0 as f64));
        let _ = writeln!(svg, "<path class=\"peak\" d=\"M{LEFT} {peak:.1}H{right}\"/>");
        let _ = writeln!(svg, "<text class=\"i\" x=\"{}\" y=\"{:.1}\">peak {}</text>", LEFT + 4.0, peak - 5.0, self.device.peak);
        if let Some(limit) = self.limit {
            let y = self.y(limit.0 as f64);
            let _ = writeln!(svg, "<path class=\"line\" d=\"M{LEFT} {y:.1}H{right}\"/>");
            let _ = writeln!(svg, "<circle class=\"line back\" cx=\"{}\" cy=\"{y:.1}\" r=\"5\" style=\"stroke:#c0392b\"/>", right - 8.0);
            let _ = writeln!(svg, "<path class=\"line\" d=\"M{} {y:.1}H{}\"/>", right - 18.0, right);
            let _ =
                writeln!(svg, "<text class=\"lt\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">limit {limit}</text>", right - 24.0, y - 6.0);
        }
    }

    fn legend(&self, svg: &mut String) {
        let y = HEIGHT - 22.0;
        for (at, (red, green, blue)) in RAMP.iter().enumerate() {
            let x = LEFT + 12.0 * at as f64;
            let _ = writeln!(svg, "<rect fill=\"#{red:02x}{green:02x}{blue:02x}\" x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\"/>");
        }
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">values, by when they are made</text>", LEFT + 68.0, y + 11.0);
        let mut x = LEFT + 280.0;
        for (kind, class, text) in [(Kind::Scratch, "s", "scratch of kernels"), (Kind::Copy, "c", "copies")] {
            if self.device.buffers.iter().any(|buffer| buffer.kind == kind) {
                let _ = writeln!(svg, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\"/>");
                let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{text}</text>", x + 18.0, y + 11.0);
                x += 160.0;
            }
        }
    }
}
