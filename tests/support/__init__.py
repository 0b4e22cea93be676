"""What tests of several folders share: golden texts of AMD instructions (`amd_golden`)."""
