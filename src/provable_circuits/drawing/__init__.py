"""Pictures from plain data: circuit drawings, charts, images; as SVG, or PNG with matplotlib."""
