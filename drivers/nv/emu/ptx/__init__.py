"""PTX for the emulated GPU: text to statements, statements to functions of the SIMT engine."""
