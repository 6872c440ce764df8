"""What a fit gives: components, the path, files, text, pictures. The only matplotlib."""
