//! A QR code for terminals: two rows of modules in one line of half blocks.

use anyhow::Context as _;
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// Draws a code, light on dark as terminals are: readers expect dark modules on a light ground, so the ground is drawn.
pub(super) fn draw(code: &str) -> anyhow::Result<String> {
    // Capital letters and digits take five and a half bits each, others eight. A screen needs no more correction.
    let code = QrCode::with_error_correction_level(code.to_ascii_uppercase(), EcLevel::L)
        .context("drawing the code")?;
    let drawn = code
        .render::<Dense1x2>()
        .dark_color(Dense1x2::Light)
        .light_color(Dense1x2::Dark)
        .build();
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use quictun_wire::invitation::Code;

    use super::*;

    #[test]
    fn a_code_with_names_as_they_are_fits_a_terminal() {
        let code = Code::new("laptop", "vpn.example.net:7500", [7; 32], [9; 16]).expect("a code");
        let drawn = draw(&code.to_string()).expect("drawn");
        let lines: Vec<_> = drawn.lines().collect();
        // Version 5, 37 modules, with four around it on each side.
        assert_eq!(lines.len(), 23);
        assert!(lines.iter().all(|line| line.chars().count() == 45));
        assert!(drawn.contains('▀') && drawn.contains('▄') && drawn.contains('█'));
    }
}
