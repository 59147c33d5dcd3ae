from lock_picker.env import load_environment as load_environment
