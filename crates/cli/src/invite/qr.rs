//! A QR code for terminals: each line of half blocks shows two rows of modules.

use anyhow::Context as _;
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// Draws a code for terminals with light text on a dark ground. Readers expect dark modules on a light ground, so this
/// draws the ground.
pub(super) fn draw(code: &str) -> anyhow::Result<String> {
    // In alphanumeric mode, capital letters and digits take five and a half bits each; other characters take eight. A
    // screen needs no stronger error correction.
    let code = QrCode::with_error_correction_level(code.to_ascii_uppercase(), EcLevel::L)
        .context("cannot draw the QR code")?;
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
    fn a_typical_code_fits_a_terminal() {
        let code = Code::new("laptop", "vpn.example.net:7500", [7; 32], [9; 16]).expect("a code");
        let drawn = draw(&code.to_string()).expect("drawn");
        let lines: Vec<_> = drawn.lines().collect();
        // Version 5 has 37 modules, and the quiet zone adds four on each side.
        assert_eq!(lines.len(), 23);
        assert!(lines.iter().all(|line| line.chars().count() == 45));
        assert!(drawn.contains('▀') && drawn.contains('▄') && drawn.contains('█'));
    }
}
